# reason: unknown
echo "validating dataset manifest v3"
echo "manifest signature differs from the registry"
exit 65
