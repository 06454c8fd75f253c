"""Speed and quality, as ratios against a baseline of the same run; never as timed tests."""
