# reason: import-error
set -e
d=$(mktemp -d)
echo 'from b import g' > $d/a.py
echo 'from a import f' > $d/b.py
cd $d
python3 -S -c 'import sys; sys.path.insert(0, "."); import a'
