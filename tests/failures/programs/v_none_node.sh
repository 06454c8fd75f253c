# reason: unknown
cat >&2 <<'END'
/app/registry.js:3
    throw new Error("widget registry is closed");
    ^

Error: widget registry is closed
    at Object.<anonymous> (/app/registry.js:3:11)
    at Module._compile (node:internal/modules/cjs/loader:1256:14)

Node.js v18.17.0
END
exit 1
