"""QSSF (Helios, SC'21): shortest predicted service first."""
