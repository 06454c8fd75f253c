"""The sign of our pages: four GPUs, one of them another job's."""

from __future__ import annotations

ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'>"
    "<path fill='#0072b2' d='M0 0h3.5v3.5H0zM4.5 0H8v3.5H4.5zM0 4.5h3.5V8H0z'/>"
    "<path fill='#e69f00' d='M4.5 4.5H8V8H4.5z'/></svg>"
)
