"use strict";
// Without scripts the page still shows everything; this adds sorting, focus on a policy and tips.

function sortBy(heading) {
  const row = heading.parentNode;
  const column = [...row.children].indexOf(heading);
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of row.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = row.closest("table").tBodies[0];
  const key = (line) => {
    const text = line.children[column].dataset.value;
    return text === "" ? null : Number(text);
  };
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null); // absent ones last
    return descending ? y - x : x - y;
  });
  body.append(...rows);
}

function dimAllBut(chosen, marks) {
  for (const mark of marks) mark.style.opacity = chosen && !chosen(mark) ? 0.12 : "";
}

const series = [...document.querySelectorAll("svg .series")];
let pinned = null;
function focusOn(slot) {
  dimAllBut(slot === null ? null : (mark) => mark.classList.contains(slot), series);
}
for (const button of document.querySelectorAll("nav button")) {
  const slot = button.dataset.slot;
  button.addEventListener("mouseenter", () => focusOn(slot));
  button.addEventListener("mouseleave", () => focusOn(pinned));
  button.addEventListener("click", () => {
    pinned = pinned === slot ? null : slot;
    for (const other of document.querySelectorAll("nav button"))
      other.setAttribute("aria-pressed", String(other.dataset.slot === pinned));
    focusOn(pinned);
  });
}

for (const heading of document.querySelectorAll(".sortable thead tr:last-child th"))
  heading.querySelector("button").addEventListener("click", () => sortBy(heading));

const tip = document.body.appendChild(document.createElement("div"));
tip.id = "tip";
tip.hidden = true;
function textOf(mark) {
  const title = mark.querySelector(":scope > title");
  if (title) {
    mark.dataset.tip = title.textContent;
    title.remove(); // or the browser would show its own as well
  }
  return mark.dataset.tip;
}
function follow(event) {
  const right = innerWidth - tip.offsetWidth - 8;
  const below = event.clientY + 18;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, right)) + "px";
  tip.style.top = (fits ? below : event.clientY - tip.offsetHeight - 12) + "px";
}
for (const chart of document.querySelectorAll("main svg")) {
  const stays = [...chart.querySelectorAll(".stay")];
  let shown = null;
  chart.addEventListener("mousemove", (event) => {
    const mark = event.target.closest(".stay, .series");
    const text = mark && textOf(mark);
    if (mark !== shown) {
      shown = mark;
      tip.textContent = text || "";
      tip.hidden = !text;
      const job = mark && mark.dataset.job;
      dimAllBut(job === undefined || job === null ? null : (stay) => stay.dataset.job === job, stays);
    }
    if (!tip.hidden) follow(event);
  });
  chart.addEventListener("mouseleave", () => {
    shown = null;
    tip.hidden = true;
    dimAllBut(null, stays);
  });
}
