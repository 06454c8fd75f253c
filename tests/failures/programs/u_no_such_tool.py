# reason: command-not-found
import subprocess

subprocess.run(["ffmpeg-nowhere", "-i", "a.mp4"], check=True)
