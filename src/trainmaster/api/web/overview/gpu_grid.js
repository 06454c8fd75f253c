// Draws every device as a square, by rack and node; says on hover what is on it.
export default {
  template: `
    <div class="relative-position" style="width: 100%">
      <div ref="box" style="width: 100%; overflow: auto" :style="{ maxHeight: height + 'px' }">
        <canvas ref="canvas" role="img" style="display: block"></canvas>
      </div>
      <div ref="hint" role="tooltip" style="display: none; position: fixed; z-index: 9000; pointer-events: none;
        max-width: 340px; padding: 6px 9px; border-radius: 4px; font-size: 12px; line-height: 1.4;
        background: #222; color: #fff; white-space: pre-line; overflow-wrap: anywhere"></div>
    </div>`,
  props: { height: Number },
  mounted() {
    this.nodes = [];
    this.squares = [];
    this.jobs = {};
    this.places = [];
    const canvas = this.$refs.canvas;
    canvas.picture = this; // what is drawn, for tests
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => (this.$refs.hint.style.display = "none"));
    canvas.addEventListener("click", (event) => this.open(event));
    this.sized = new ResizeObserver(() => this.layout());
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
    // All of it: nodes as [name, rack, state, devices], squares by device, jobs by id as [name, user, hue].
    show(all) {
      this.nodes = all.nodes;
      this.squares = all.squares;
      this.jobs = all.jobs;
      this.layout();
      this.$refs.canvas.dataset.shown = String(all.number);
    },
    // What is different since.
    change(news) {
      for (const [index, node] of news.nodes) this.nodes[index] = node;
      for (const [index, square] of news.squares) this.squares[index] = square;
      Object.assign(this.jobs, news.jobs);
      if (news.nodes.length) this.draw();
      else for (const [index] of news.squares) this.square(this.pen(), index);
      this.$refs.canvas.dataset.shown = String(news.number);
    },
    layout() {
      const width = this.$refs.box.clientWidth;
      if (!width || !this.nodes.length) return;
      let size = 30;
      let plan = this.lowest(size, width);
      while (size > 3 && plan.tall > this.height) plan = this.lowest(--size, width);
      Object.assign(this, plan, { size });
      const canvas = this.$refs.canvas;
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.max(width, plan.wide) * ratio;
      canvas.height = plan.tall * ratio;
      canvas.style.width = Math.max(width, plan.wide) + "px";
      canvas.style.height = plan.tall + "px";
      this.draw();
    },
    lowest(size, width) {
      const plans = [1, 2, 3, 4, 6, 8].map((columns) => this.plan(size, width, columns));
      return plans.find((plan) => plan.tall <= this.height) || plans.sort((a, b) => a.tall - b.tall)[0];
    },
    // Racks as blocks side by side, their nodes below each other in so many columns.
    plan(size, width, across_rack) {
      const gap = size > 9 ? 3 : 1;
      const step = size + gap;
      const named = size > 9;
      const pen = this.$refs.canvas.getContext("2d");
      pen.font = "11px system-ui, sans-serif";
      const racks = new Map();
      this.nodes.forEach((node, index) => {
        if (!racks.has(node[1])) racks.set(node[1], []);
        racks.get(node[1]).push(index);
      });
      const firsts = [];
      let count = 0;
      for (const node of this.nodes) {
        firsts.push(count);
        count += node[3];
      }
      const head = racks.size > 1 ? 15 : 0;
      const places = new Array(count);
      const labels = [];
      let x = 0, y = 0, high = 0, wide = 0;
      for (const [rack, nodes] of racks) {
        const most = Math.max(...nodes.map((each) => this.nodes[each][3]));
        const across = Math.min(most, Math.max(1, Math.floor((width - 100) / step)));
        const label = named
          ? Math.min(96, 8 + Math.max(...nodes.map((each) => pen.measureText(this.nodes[each][0]).width)))
          : 0;
        const rows = nodes.map((each) => Math.ceil(this.nodes[each][3] / across));
        const all = rows.reduce((sum, each) => sum + each, 0);
        const fits = Math.max(Math.max(...rows), Math.ceil(all / across_rack));
        const columns = [[]];
        let used = 0;
        nodes.forEach((each, at) => {
          if (used + rows[at] > fits) {
            columns.push([]);
            used = 0;
          }
          columns[columns.length - 1].push([each, used]);
          used += rows[at];
        });
        const one = label + across * step + (named ? 14 : 5);
        let block = columns.length * one;
        if (x && x + block > width) {
          x = 0;
          y += high;
          high = 0;
        }
        if (head) labels.push([x, y + 11, rack, block - 6, true]);
        let deep = 0;
        columns.forEach((column, c) => {
          for (const [each, row] of column) {
            const left = x + c * one, top = y + head + row * step;
            if (named) labels.push([left, top + size / 2 + 4, this.nodes[each][0], label - 6, false]);
            for (let i = 0; i < this.nodes[each][3]; i++) {
              const down = Math.floor(i / across);
              places[firsts[each] + i] = [left + label + (i % across) * step, top + down * step, each, i];
              deep = Math.max(deep, row + down + 1);
            }
          }
        });
        high = Math.max(high, head + deep * step + (head ? 4 : 0));
        x += block;
        wide = Math.max(wide, x);
      }
      return { places, labels, wide, tall: y + high };
    },
    colours() {
      return document.body.classList.contains("body--dark")
        ? { free: "#343a40", text: "#bbb", light: 58, hatch: "#1d1d1d", hidden: "#788", off: "#4a4034" }
        : { free: "#e6e9ec", text: "#555", light: 50, hatch: "#fff", hidden: "#9aa5ad", off: "#cfc6b8" };
    },
    pen() {
      const pen = this.$refs.canvas.getContext("2d");
      const ratio = window.devicePixelRatio || 1;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return pen;
    },
    draw() {
      if (!this.places.length) return;
      const pen = this.pen();
      pen.clearRect(0, 0, this.$refs.canvas.width, this.$refs.canvas.height);
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = this.colours().text;
      for (const [x, y, text, width] of this.labels) pen.fillText(this.cut(pen, text, width), x, y);
      for (let i = 0; i < this.places.length; i++) this.square(pen, i);
    },
    cut(pen, text, width) {
      if (pen.measureText(text).width <= width) return text;
      while (text && pen.measureText("…" + text).width > width) text = text.slice(1);
      return "…" + text; // the number is at the end
    },
    square(pen, index) {
      const place = this.places[index];
      if (!place) return;
      const [x, y, node] = place;
      const size = this.size, colours = this.colours();
      const [pieces, aside] = this.squares[index] || [[], ""];
      const state = this.nodes[node][2];
      pen.clearRect(x - 1, y - 1, size + 2, size + 2);
      pen.fillStyle = state === "up" ? colours.free : colours.off;
      pen.fillRect(x, y, size, size);
      const running = pieces.filter((each) => each[2] !== 1);
      const frozen = pieces.filter((each) => each[2] === 1);
      let left = x;
      const total = Math.max(1, running.reduce((sum, each) => sum + each[1], 0));
      for (const [job, share] of running) {
        const wide = (size * share) / total;
        pen.fillStyle = this.colour(job, colours);
        pen.fillRect(left, y, Math.max(1, wide - (running.length > 1 ? 0.5 : 0)), size);
        left += wide;
      }
      if (size < 7) {
        if (frozen.length && !running.length) {
          pen.fillStyle = this.colour(frozen[0][0], colours);
          pen.beginPath();
          pen.moveTo(x, y);
          pen.lineTo(x + size, y);
          pen.lineTo(x, y + size);
          pen.fill();
        }
        frozen.length = 0; // too small to be hatched
      }
      // Suspended in memory: hatched; all of the square where nothing runs, else a strip below.
      frozen.forEach(([job], at) => {
        const high = running.length ? size * 0.3 : size;
        const part = size / frozen.length;
        this.hatch(pen, x + at * part, y + size - high, part, high, this.colour(job, colours), colours);
      });
      if (aside || state === "away" || state === "set aside") {
        pen.strokeStyle = "#d62728";
        pen.lineWidth = size > 9 ? 2 : 1;
        pen.strokeRect(x + pen.lineWidth / 2, y + pen.lineWidth / 2, size - pen.lineWidth, size - pen.lineWidth);
        pen.beginPath();
        pen.moveTo(x, y);
        pen.lineTo(x + size, y + size);
        pen.stroke();
      }
    },
    colour(job, colours) {
      const known = this.jobs[job];
      return known ? `hsl(${known[2]} 62% ${colours.light}%)` : colours.hidden;
    },
    hatch(pen, x, y, width, height, colour, colours) {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, width, height);
      pen.clip();
      pen.fillStyle = colours.hatch;
      pen.fillRect(x, y, width, height);
      pen.strokeStyle = colour;
      pen.lineWidth = width > 9 ? 2.5 : 1.2;
      const step = width > 9 ? 6 : 3;
      for (let at = -height; at < width; at += step) {
        pen.beginPath();
        pen.moveTo(x + at, y + height);
        pen.lineTo(x + at + height, y);
        pen.stroke();
      }
      pen.restore();
    },
    at(event) {
      const found = this.$refs.canvas.getBoundingClientRect();
      const x = event.clientX - found.left, y = event.clientY - found.top;
      return this.places.findIndex(
        (place) => x >= place[0] && x < place[0] + this.size + 1 && y >= place[1] && y < place[1] + this.size + 1
      );
    },
    hover(event) {
      const index = this.at(event);
      const hint = this.$refs.hint;
      hint.style.display = index < 0 ? "none" : "block";
      this.$refs.canvas.style.cursor = index < 0 ? "default" : "pointer";
      if (index < 0) return;
      hint.textContent = this.words(index).join("\n");
      const right = event.clientX + 350 > window.innerWidth;
      hint.style.left = right ? "auto" : event.clientX + 12 + "px";
      hint.style.right = right ? window.innerWidth - event.clientX + 12 + "px" : "auto";
      const up = event.clientY + 140 > window.innerHeight;
      hint.style.top = up ? "auto" : event.clientY + 14 + "px";
      hint.style.bottom = up ? window.innerHeight - event.clientY + 10 + "px" : "auto";
    },
    words(index) {
      const [, , node, number] = this.places[index];
      const [name, rack, state] = this.nodes[node];
      const [pieces, aside, util, used, total, degrees] = this.squares[index] || [[], ""];
      const said = [`${name}:${number}` + (rack ? `, ${rack}` : "") + (state === "up" ? "" : ` (${state})`)];
      for (const [job, share, how] of pieces) {
        const known = this.jobs[job];
        const who = known ? `${job} ${known[0]} (${known[1]})` : "Held by another user";
        const part = share < 1 ? `, ${+share.toFixed(3)} GPU` : "";
        said.push(who + part + ["", ", suspended in memory", ", leaving"][how]);
      }
      if (!pieces.length && !aside && state === "up") said.push("Free");
      if (util !== undefined && util !== null) said.push(`Utilisation ${Math.round(util * 100)} %`);
      if (total) said.push(`Memory ${(used / 2 ** 30).toFixed(1)} of ${(total / 2 ** 30).toFixed(1)} GiB`);
      if (degrees !== undefined && degrees !== null) said.push(`${degrees} °C`);
      if (aside) said.push(`Set aside: ${aside}`);
      return said;
    },
    open(event) {
      const index = this.at(event);
      if (index < 0) return;
      const [, , node, number] = this.places[index];
      const pieces = (this.squares[index] || [[]])[0].filter((each) => this.jobs[each[0]]);
      this.$emit("open", { job: pieces.length === 1 ? pieces[0][0] : null, node: this.nodes[node][0], number });
    },
  },
};
