// Draws who held each device when: a lane for each device, bars in the colours of jobs.
export default {
  template: `
    <div style="width: 100%">
      <div ref="box" style="width: 100%; overflow-y: auto" :style="{ maxHeight: height + 'px' }">
        <canvas ref="canvas" role="img" style="display: block"></canvas>
      </div>
      <canvas ref="axis" style="display: block"></canvas>
      <div ref="hint" role="tooltip" style="display: none; position: fixed; z-index: 9000; pointer-events: none;
        max-width: 340px; padding: 6px 9px; border-radius: 4px; font-size: 12px; line-height: 1.4;
        background: #222; color: #fff; white-space: pre-line; overflow-wrap: anywhere"></div>
    </div>`,
  props: { height: Number },
  mounted() {
    this.said = null;
    const canvas = this.$refs.canvas;
    canvas.picture = this; // what is drawn, for tests
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => (this.$refs.hint.style.display = "none"));
    canvas.addEventListener("click", (event) => {
      const bar = this.at(event);
      if (bar && bar.job) this.$emit("open", bar.job);
    });
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.$refs.box);
    this.themed = new MutationObserver(() => this.draw());
    this.themed.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.$emit("ready");
  },
  unmounted() {
    this.sized.disconnect();
    this.themed.disconnect();
  },
  methods: {
    // Lanes by name; bars as {lane, from, to, job, name, user, hue, ended, held: false where suspended}.
    show(said) {
      this.said = said;
      this.draw();
    },
    sizes() {
      const lanes = this.said.lanes.length;
      const high = Math.max(9, Math.min(22, Math.floor(this.height / Math.max(1, lanes))));
      return { high, left: 70, width: this.$refs.box.clientWidth };
    },
    draw() {
      if (!this.said || !this.$refs.box.clientWidth) return;
      const { high, left, width } = this.sizes();
      const dark = document.body.classList.contains("body--dark");
      const { lanes, bars, since, until } = this.said;
      const pen = this.prepare(this.$refs.canvas, width, Math.max(1, lanes.length * high));
      const text = dark ? "#bbb" : "#555";
      const x = (at) => left + ((at - since) / (until - since)) * (width - left - 8);
      pen.font = `${Math.min(11, high)}px system-ui, sans-serif`;
      lanes.forEach((lane, row) => {
        pen.fillStyle = row % 2 ? "transparent" : dark ? "#262b30" : "#f3f5f7";
        pen.fillRect(left, row * high, width - left - 8, high);
        pen.fillStyle = text;
        pen.fillText(lane.length > 10 ? "…" + lane.slice(-9) : lane, 0, row * high + high * 0.78);
      });
      this.drawn = [];
      for (const bar of [...bars].sort((a, b) => a.held - b.held)) {
        const begin = Math.max(left, x(bar.from)), end = Math.max(begin + 1.5, x(bar.to));
        const y = bar.lane * high + 1, deep = high - 2;
        const colour = bar.job ? `hsl(${bar.hue} 62% ${dark ? 58 : 50}%)` : dark ? "#788" : "#9aa5ad";
        pen.save();
        pen.beginPath();
        pen.rect(begin, y, end - begin, deep);
        pen.clip();
        if (bar.held) {
          pen.fillStyle = colour;
          pen.fillRect(begin, y, end - begin, deep);
        } else {
          pen.strokeStyle = colour;
          pen.lineWidth = 1.6;
          for (let at = begin - deep; at < end; at += 5) {
            pen.beginPath();
            pen.moveTo(at, y + deep);
            pen.lineTo(at + deep, y);
            pen.stroke();
          }
        }
        pen.restore();
        if (bar.held) this.mark(pen, bar.ended, end, y, deep, dark);
        this.drawn.push([begin, y, end, y + deep, bar]);
      }
      this.ruler(since, until, x, width, text);
      this.$refs.canvas.dataset.bars = String(bars.length);
    },
    // What ended a bar: an arrow for a migration, two lines for a resize, a red edge for a failure.
    mark(pen, ended, x, y, deep, dark) {
      const ink = dark ? "#fff" : "#111";
      if (ended === "migrated") {
        pen.fillStyle = ink;
        pen.beginPath();
        pen.moveTo(x - 1, y + deep / 2);
        pen.lineTo(x - 7, y + deep * 0.15);
        pen.lineTo(x - 7, y + deep * 0.85);
        pen.fill();
      } else if (ended === "resized") {
        pen.fillStyle = ink;
        pen.fillRect(x - 4, y, 1.5, deep);
        pen.fillRect(x - 1.5, y, 1.5, deep);
      } else if (["failed", "lost", "timed_out"].includes(ended)) {
        pen.fillStyle = "#d62728";
        pen.fillRect(x - 3, y - 1, 3, deep + 2);
      }
    },
    prepare(canvas, width, height) {
      const ratio = window.devicePixelRatio || 1;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.width = width + "px";
      canvas.style.height = height + "px";
      const pen = canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return pen;
    },
    ruler(since, until, x, width, text) {
      const pen = this.prepare(this.$refs.axis, width, 16);
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = text;
      const steps = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400];
      const step = steps.find((each) => (until - since) / each <= Math.max(2, width / 110)) || 21600;
      for (let at = Math.ceil(since / step) * step; at <= until; at += step) {
        const when = new Date(at * 1000);
        const said = when.toLocaleTimeString([], {
          hour: "2-digit",
          minute: "2-digit",
          ...(step < 60 ? { second: "2-digit" } : {}),
          hourCycle: "h23",
        });
        const wide = pen.measureText(said).width;
        if (x(at) + wide / 2 < width) pen.fillText(said, x(at) - wide / 2, 12);
      }
    },
    at(event) {
      const found = this.$refs.canvas.getBoundingClientRect();
      const x = event.clientX - found.left, y = event.clientY - found.top;
      const hit = (this.drawn || []).filter((b) => x >= b[0] && x <= b[2] && y >= b[1] && y <= b[3]);
      return hit.length ? hit[hit.length - 1][4] : null;
    },
    hover(event) {
      const bar = this.at(event), hint = this.$refs.hint;
      hint.style.display = bar ? "block" : "none";
      this.$refs.canvas.style.cursor = bar && bar.job ? "pointer" : "default";
      if (!bar) return;
      const time = (at) => new Date(at * 1000).toLocaleTimeString([], { hourCycle: "h23" });
      const who = bar.job ? `${bar.job} ${bar.name} (${bar.user})` : "Held by another user";
      const what = bar.held ? (bar.ended ? `${bar.ended.replace("_", " ")} at ${time(bar.to)}` : "runs") : "suspended";
      const lines = [who, `${this.said.lanes[bar.lane]}, ${time(bar.from)} to ${time(bar.to)}`, what];
      hint.textContent = lines.join("\n");
      const right = event.clientX + 350 > window.innerWidth;
      hint.style.left = right ? "auto" : event.clientX + 12 + "px";
      hint.style.right = right ? window.innerWidth - event.clientX + 12 + "px" : "auto";
      const up = event.clientY + 100 > window.innerHeight;
      hint.style.top = up ? "auto" : event.clientY + 14 + "px";
      hint.style.bottom = up ? window.innerHeight - event.clientY + 10 + "px" : "auto";
    },
  },
};
