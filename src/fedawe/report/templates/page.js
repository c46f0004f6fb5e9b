"use strict";
// Draws the figures, sorts and exports the tables. All numbers come ready-made in the element #data.
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down"];
  const DASHES = { solid: "", dash: "6 3", dot: "1.5 3", dashdot: "7 2 1.5 2" };

  // ---- theme -------------------------------------------------------------------------------------------------------
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (algorithm) => (isDark() ? algorithm.dark : algorithm.light);
  const faint = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  const themeButton = document.getElementById("theme");
  const setTheme = (theme) => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    themeButton.textContent = `theme: ${theme || "system"}`;
    try { theme ? localStorage.setItem("fedawe-theme", theme) : localStorage.removeItem("fedawe-theme"); } catch { /* private */ }
    redraw();
  };
  themeButton.addEventListener("click", () => {
    const next = { undefined: isDark() ? "light" : "dark", light: "dark", dark: "light" };
    setTheme(next[root.dataset.theme]);
  });
  prefersDark.addEventListener("change", () => redraw());

  // ---- tables ------------------------------------------------------------------------------------------------------
  const compareCells = (a, b, numeric) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // what is missing comes last, whichever way
    return numeric ? a - b : a.localeCompare(b);
  };
  for (const box of document.querySelectorAll(".table")) {
    const body = box.querySelector("tbody");
    const heads = [...box.querySelectorAll("thead th[aria-sort]")];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numeric = head.classList.contains("number");
      const key = (row) => row.cells[column].dataset.sort;
      const rows = [...body.rows].sort((x, y) => {
        const [a, b] = [key(x), key(y)];
        return a === "" || b === "" || !down ? compareCells(a, b, numeric) : compareCells(b, a, numeric);
      });
      body.append(...rows);
    }));
    const exports = JSON.parse(box.querySelector(".exports").textContent);
    for (const button of box.querySelectorAll("[data-export]")) {
      button.addEventListener("click", () => {
        const format = button.dataset.export, found = exports[format];
        const rows = [...body.rows].map((row) => found.rows[Number(row.dataset.row)]);
        download(`${box.dataset.name}.${format}`, found.head + rows.join("") + found.foot);
      });
    }
  }
  const download = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "copied"; }
      catch { getSelection().selectAllChildren(code); button.textContent = "selected"; }
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
  }

  // ---- what all figures share --------------------------------------------------------------------------------------
  const axis = (title, more = {}) => ({
    title: { text: title, standoff: 8 }, gridcolor: css("--grid"), linecolor: css("--rule"), zeroline: false, automargin: true,
    ...more,
  });
  const layout = (more) => ({
    paper_bgcolor: css("--paper"), plot_bgcolor: css("--paper"), showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--ink") },
    margin: { l: 8, r: 12, t: 12, b: 8 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--accent") },
    hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--rule"), font: { color: css("--ink"), size: 12.5 } },
    ...more,
  });
  const config = (large) => ({
    responsive: true, displaylogo: false, displayModeBar: large ? "hover" : false,
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg" },
  });

  // ---- one experiment ----------------------------------------------------------------------------------------------
  class Article {
    constructor(element) {
      this.element = element;
      this.data = DATA[element.dataset.key];
      for (const metric of this.data.metrics) for (const curve of Object.values(metric.curves)) curve.x ??= metric.rounds;
      this.span = [0, Math.max(1, ...this.data.metrics.flatMap((metric) => metric.rounds), ...this.data.partial.flatMap((run) => run.x))];
      this.shown = new Set(this.data.algorithms.filter((a) => a.shown).map((a) => a.key));
      this.zoom = null; // rounds, once the reader has chosen some
      this.cursor = null; // index of the round that the keyboard reads
      this.drawn = new Set();
      this.controls();
      const seen = new IntersectionObserver((entries) => {
        for (const entry of entries) if (entry.isIntersecting) this.draw(entry.target);
      }, { rootMargin: "300px" });
      this.plots = [...element.querySelectorAll("[data-figure]")];
      this.plots.forEach((plot) => seen.observe(plot));
    }

    control(name) { return this.element.querySelector(`[data-control="${name}"]`); }
    value(name, otherwise) { return this.control(name)?.value ?? otherwise; }
    algorithm(key) { return this.data.algorithms.find((a) => a.key === key); }
    metric() { return this.data.metrics.find((m) => m.name === this.value("metric")) ?? this.data.metrics[0]; }

    controls() {
      const fill = (name, options) => {
        this.control(name)?.append(...options.map(([value, text]) => new Option(text, value)));
      };
      fill("metric", this.data.metrics.map((m) => [m.name, m.title]));
      fill("seed", this.data.traces.map((trace, n) => [n, trace.seed]));
      const on = (name, figures, before = () => {}) => this.control(name)?.addEventListener("input", (event) => {
        before(event.target);
        this.redraw(figures);
      });
      on("metric", ["curves"], () => { this.zoom = null; });
      on("band", ["curves"]);
      on("range", ["curves"], () => { this.zoom = null; });
      on("seed", ["stripes"]);
      on("classes", ["classes"]);
      on("smooth", ["curves"], (slider) => {
        slider.parentElement.querySelector("output").textContent = Number(slider.value) ? Number(slider.value).toFixed(2) : "off";
      });
      this.chips();
    }

    chips() {
      const box = this.element.querySelector(".chips");
      const chip = (text, pressed, action) => {
        const button = document.createElement("button");
        button.type = "button";
        button.append(text);
        if (pressed !== null) button.setAttribute("aria-pressed", pressed);
        button.addEventListener("click", action);
        box.append(button);
        return button;
      };
      const buttons = new Map();
      const update = () => {
        for (const [key, button] of buttons) button.setAttribute("aria-pressed", this.shown.has(key));
        this.redraw(["curves", "classes"]);
      };
      for (const algorithm of this.data.algorithms) {
        const button = chip(algorithm.name, this.shown.has(algorithm.key), () => {
          if (!this.shown.delete(algorithm.key)) this.shown.add(algorithm.key);
          update();
        });
        button.dataset.key = algorithm.key;
        buttons.set(algorithm.key, button);
      }
      const main = this.data.algorithms.filter((a) => a.shown);
      const two = main.filter((a) => a.strong);
      if (main.length > 2 && two.length === 2) chip(`only ${two[0].name} and ${two[1].name}`, null, () => { this.shown = new Set(two.map((a) => a.key)); update(); });
      if (main.length > 2) chip("all", null, () => { this.shown = new Set(main.map((a) => a.key)); update(); });
      this.colourChips = () => {
        for (const [key, button] of buttons) {
          const algorithm = this.algorithm(key);
          button.querySelector("svg")?.remove();
          const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
          svg.setAttribute("width", 26); svg.setAttribute("height", 8); svg.setAttribute("aria-hidden", "true");
          const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
          line.setAttribute("d", "M1 4H25"); line.setAttribute("stroke", colour(algorithm));
          line.setAttribute("stroke-width", algorithm.strong ? 4 : 2); line.setAttribute("stroke-dasharray", DASHES[algorithm.dash]);
          svg.append(line);
          button.prepend(svg);
        }
      };
      this.colourChips();
    }

    draw(plot) {
      const made = this[plot.dataset.figure](plot);
      if (!made) { plot.textContent = "Nothing to draw yet."; return; }
      const first = !this.drawn.has(plot);
      this.drawn.add(plot);
      if (first) plot.textContent = "";
      Plotly.react(plot, made.data, layout(made.layout), config(plot.classList.contains("tall")));
      if (first && plot.dataset.figure === "curves") this.keyboard(plot);
    }

    redraw(figures) {
      for (const plot of this.drawn) if (!figures || figures.includes(plot.dataset.figure)) this.draw(plot);
    }

    // -- curves
    curves() {
      const metric = this.metric(), band = this.value("band"), traces = [];
      const smooth = Number(this.value("smooth", 0));
      const unit = metric.unit ? ` ${metric.unit}` : "", digits = metric.share ? ".2f" : ".4g";
      // A logarithmic axis has no place for a band that reaches zero: it ends below the lowest curve.
      const floor = metric.log ? Math.min(...Object.values(metric.curves).flatMap((curve) => curve.mean)) / 2 : -Infinity;
      const line = (a, more) => ({
        color: colour(a), width: a.strong ? 3.5 : 1.8, dash: a.dash, ...more,
      });
      const strongLast = [...this.data.algorithms].sort((a, b) => a.strong - b.strong);
      for (const a of strongLast) {
        const curve = metric.curves[a.key];
        if (!curve || !this.shown.has(a.key)) continue;
        const ema = (values) => average(values, smooth ** curve.every);
        const mean = ema(curve.mean);
        if (band === "std" && curve.std) {
          const high = ema(curve.mean.map((y, n) => y + curve.std[n])), low = ema(curve.mean.map((y, n) => Math.max(floor, y - curve.std[n])));
          traces.push({
            x: [...curve.x, ...[...curve.x].reverse()], y: [...high, ...low.reverse()], fill: "toself", mode: "lines",
            fillcolor: faint(colour(a), a.strong ? 0.2 : 0.07), line: { width: 0 }, hoverinfo: "skip", name: a.name,
          });
        }
        if (band === "seeds" && curve.seeds) {
          for (const seed of curve.seeds) {
            traces.push({ x: curve.x, y: ema(seed.y), mode: "lines", line: line(a, { width: 0.8 }), opacity: 0.6, hoverinfo: "skip" });
          }
        }
        traces.push({
          x: curve.x, y: mean, customdata: curve.std, mode: "lines", name: a.name, line: line(a), meta: a.key,
          hovertemplate: `%{y:${digits}}${unit}` + (curve.std ? ` ± %{customdata:${digits}}` : ""),
        });
      }
      if (metric === this.data.metrics[0]) {
        for (const run of this.data.partial) {
          const a = this.algorithm(run.key);
          if (!this.shown.has(run.key)) continue;
          traces.push({
            x: run.x, y: run.y, mode: "lines+markers", line: line(a, { width: 0.9, dash: "dot" }), name: `${a.name}, seed ${run.seed}: ${run.status}`,
            marker: { size: run.x.map((_, n) => (n === run.x.length - 1 ? 9 : 0)), symbol: run.status === "diverged" ? "x" : "circle-open", color: colour(a) },
            hovertemplate: `%{y:${digits}}${unit}`,
          });
        }
      }
      // On a logarithmic axis, Plotly takes the logarithms of a range.
      const end = this.value("range") === "end" && metric.end ? metric.end.map((y) => (metric.log ? Math.log10(y) : y)) : undefined;
      return {
        data: traces,
        layout: {
          hovermode: "x unified", uirevision: `${metric.name} ${this.value("range")}`,
          xaxis: axis("round", { range: this.zoom ?? this.span, spikecolor: css("--soft"), spikethickness: 1, spikedash: "dot" }),
          yaxis: axis(metric.title + (metric.unit ? ` (${metric.unit})` : ""), { type: metric.log ? "log" : "linear", range: end, autorange: !end }),
        },
      };
    }

    keyboard(plot) {
      const readout = plot.parentElement.querySelector(".readout");
      const rounds = () => [...new Set(Object.values(this.metric().curves).flatMap((curve) => curve.x))].sort((a, b) => a - b);
      plot.addEventListener("keydown", (event) => {
        const xs = rounds(), last = xs.length - 1;
        if (last < 1) return;
        const step = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10 }[event.key];
        const zoom = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
        if (step) this.cursor = Math.min(last, Math.max(0, (this.cursor ?? (step > 0 ? -1 : last + 1)) + step));
        else if (event.key === "Home") this.cursor = 0;
        else if (event.key === "End") this.cursor = last;
        else if (zoom) {
          const [low, high] = this.zoom ?? [xs[0], xs[last]], centre = xs[this.cursor ?? last];
          const span = Math.min(xs[last] - xs[0], (high - low) * zoom), start = Math.min(Math.max(xs[0], centre - span / 2), xs[last] - span);
          this.zoom = span >= xs[last] - xs[0] ? null : [start, start + span];
          Plotly.relayout(plot, { "xaxis.range": this.zoom ?? this.span });
        } else if (event.key === "0" || event.key === "Escape") {
          this.zoom = null;
          Plotly.relayout(plot, { "xaxis.range": this.span });
        } else return;
        event.preventDefault();
        if (this.cursor === null) return;
        const x = xs[this.cursor], metric = this.metric(), unit = metric.unit ? ` ${metric.unit}` : "";
        const said = this.data.algorithms.filter((a) => this.shown.has(a.key) && metric.curves[a.key]).map((a) => {
          const curve = metric.curves[a.key], n = curve.x.indexOf(x);
          return n < 0 ? null : `${a.name} ${metric.share ? curve.mean[n].toFixed(2) : curve.mean[n]}${unit}`;
        });
        readout.textContent = `Round ${x}: ${said.filter(Boolean).join(", ")}`;
        Plotly.Fx.hover(plot, [{ xval: x, curveNumber: plot.data.findIndex((trace) => trace.meta) }]);
      });
      plot.addEventListener("blur", () => { readout.textContent = ""; Plotly.Fx.unhover(plot); });
    }

    // -- availability
    stripes() {
      const trace = this.data.traces[Number(this.value("seed", 0))];
      if (!trace) return null;
      const rows = decode(trace), x = trace.active.map((_, n) => n * trace.width);
      const clients = trace.order.map((client, n) => `client ${client}, available in ${trace.shares[n]} % of rounds`);
      return {
        data: [
          { x, y: trace.active, mode: "lines", line: { color: css("--accent"), width: 1.4, shape: "hv" }, yaxis: "y2", hovertemplate: "round %{x}: %{y} clients<extra></extra>" },
          {
            type: "heatmap", x, z: rows, zmin: 0, zmax: 1, showscale: false, text: clients.map((text) => Array(x.length).fill(text)),
            colorscale: [[0, faint(css("--accent"), 0)], [1, css("--accent")]],
            hovertemplate: trace.width > 1 ? "rounds from %{x}<br>%{text}<br>share %{z:.2f}<extra></extra>" : "round %{x}<br>%{text}<br>available: %{z}<extra></extra>",
          },
        ],
        layout: {
          xaxis: axis("round", { showgrid: false }),
          yaxis: axis(`${trace.order.length < trace.clients ? `${trace.order.length} of ${trace.clients} ` : ""}clients`, { domain: [0, 0.74], autorange: "reversed", showticklabels: false, showgrid: false }),
          yaxis2: axis("available", { domain: [0.8, 1], rangemode: "tozero", nticks: 4 }),
        },
      };
    }

    bars(found, title, hover, more = {}) {
      return {
        data: [{ type: "bar", x: found.x, y: found.y, width: found.width, marker: { color: css("--accent"), line: { width: 0 } }, customdata: found.said, hovertemplate: hover }],
        layout: { bargap: 0.04, xaxis: axis(title), yaxis: axis(more.y, { type: more.log ? "log" : "linear", tickformat: more.format, dtick: more.log ? 1 : undefined, exponentformat: "none" }) },
      };
    }

    probabilities() {
      const found = this.data.probabilities;
      return found && this.bars({ ...found, width: 0.046 }, found.known ? "base probability" : "share of rounds available", "about %{x}: %{y} clients<extra></extra>", { y: "clients" });
    }

    histogram(found, title) {
      if (!found) return null;
      const said = found.from.map((n) => (found.width > 1 ? `${n} to ${n + found.width - 1}` : n));
      const bins = { x: found.from.map((n) => n + (found.width - 1) / 2), y: found.y, width: found.width * 0.96, said };
      return this.bars(bins, title, "%{customdata} rounds: %{y:.3g} %<extra></extra>", { y: "share (%)", log: true });
    }
    echoes() { return this.histogram(this.data.echoes, "rounds since last active"); }
    staleness() { return this.histogram(this.data.staleness, "age in rounds"); }

    // -- classes
    classes() {
      const found = this.data.classes, kind = this.value("classes", "y");
      if (!found) return null;
      const data = [];
      for (const a of [...this.data.algorithms].sort((x, y) => x.strong - y.strong)) {
        const view = found.views[a.key];
        if (!view?.[kind] || !this.shown.has(a.key)) continue;
        data.push({
          x: view.x, y: view[kind], customdata: view.classes, name: a.name, mode: "markers", // classes have no order
          marker: { color: colour(a), size: a.strong ? 10 : 7, symbol: SYMBOLS[this.data.algorithms.indexOf(a) % SYMBOLS.length] },
          hovertemplate: `%{y:.4g}, class %{customdata}`,
        });
      }
      const title = kind === "y" ? found.heading : `${found.share ? "points" : found.heading} minus ${found.baseline}`;
      return {
        data,
        layout: { hovermode: "closest", xaxis: axis("class availability (% of rounds)"), yaxis: axis(title, { zeroline: kind !== "y", zerolinecolor: css("--soft") }) },
      };
    }
  }

  const average = (values, beta) => {
    if (!beta) return values;
    let y = values[0];
    return values.map((x) => (y = beta * y + (1 - beta) * x));
  };
  const decode = (trace) => {
    const bytes = Uint8Array.from(atob(trace.stripes), (sign) => sign.charCodeAt(0));
    const wide = trace.width > 1, stride = wide ? trace.columns : Math.ceil(trace.columns / 8);
    return trace.order.map((_, row) => Array.from({ length: trace.columns }, (_, n) => (
      wide ? bytes[row * stride + n] / 255 : (bytes[row * stride + (n >> 3)] >> (7 - (n & 7))) & 1
    )));
  };

  const articles = [];
  const redraw = () => { for (const article of articles) { article.colourChips(); article.redraw(); } };
  let remembered = null;
  try { remembered = localStorage.getItem("fedawe-theme"); } catch { /* private */ }
  if (remembered === "light" || remembered === "dark") setTheme(remembered);
  for (const element of document.querySelectorAll("article")) articles.push(new Article(element));

  // ---- print: everything, on light paper ---------------------------------------------------------------------------
  let before; // the theme to go back to
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    for (const details of document.querySelectorAll("details")) details.open = true;
    for (const article of articles) { article.colourChips(); article.plots.forEach((plot) => article.draw(plot)); }
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    redraw();
  });
  root.dataset.ready = "yes";
})();
