# reason: command-not-found
sh -ec 'echo start; nvidia-smii -L; echo end'
