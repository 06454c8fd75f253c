"""Measurements on a real GPU: `make gpu-bundle` here, `bash gpu-bundle/run_all.sh` there."""
