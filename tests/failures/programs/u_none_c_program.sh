# reason: unknown
echo "frobnicate: cannot align widget 7 with gadget 3" >&2
exit 5
