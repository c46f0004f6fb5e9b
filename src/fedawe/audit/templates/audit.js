"use strict";
// Draws the figures. All numbers are in the element #data.
(() => {
  const { algorithms, figures } = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const isNarrow = () => window.innerWidth < 700;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (algorithm) => (isDark() ? algorithm.dark : algorithm.light);
  const asText = (name) => name.replace(/&/g, "&amp;").replace(/</g, "&lt;"); // figures would read names as markup
  const dashed = (algorithm) => (algorithm.key.endsWith("-latest") ? "dot" : "solid");

  const axis = (title, more = {}) => ({
    title: { text: title, standoff: 8 }, gridcolor: css("--grid"), linecolor: css("--rule"), zeroline: false,
    automargin: true, ...more,
  });
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--ink") },
    margin: { l: 8, r: 12, t: 12, b: 8 },
    hoverlabel: { bgcolor: css("--panel"), bordercolor: css("--rule"), font: { color: css("--ink"), size: 12.5 } },
    ...more,
  });
  const CONFIG = { responsive: true, displayModeBar: false };
  const PALETTE = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b"]; // for colour-blind readers too

  const histogram = (bins, title, scale) => bins && {
    data: [{
      // The share of a bin is divided by its number of rounds, so that wide bins are not taller for their width.
      type: "bar", y: bins.share.map((share, n) => share / (bins.to[n] + 1 - bins.from[n])), marker: { color: css("--accent") },
      x: bins.from.map((a, n) => (a + bins.to[n] + 1) / 2), width: bins.from.map((a, n) => bins.to[n] + 1 - a),
      customdata: bins.from.map((a, n) => [a === bins.to[n] ? `${a}` : `${a} to ${bins.to[n]}`, bins.share[n]]),
      hovertemplate: "%{customdata[0]} rounds: %{customdata[1]:.2f} %<extra></extra>",
    }],
    layout: { xaxis: axis(title, { type: "log", dtick: 1 }), yaxis: axis("% of each length", { type: scale, ...(scale === "log" ? { dtick: 1 } : {}) }), bargap: 0 },
  };

  const draw = {
    bars() {
      const { names, rates, fair } = figures.bars, n = algorithms.length, never = rates.filter((rate) => rate === 0).length;
      const columns = isNarrow() ? 1 : 3, rows = Math.ceil(n / columns);
      const top = Math.max(2, ...algorithms.flatMap((a) => fair[a.key])) * 1.05;
      const data = [], axes = {}, annotations = [], shapes = [];
      document.querySelector('[data-figure="bars"]').style.height = `${rows * (columns === 1 ? 150 : 205)}px`;
      algorithms.forEach((a, at) => {
        const id = at === 0 ? "" : String(at + 1), row = Math.floor(at / columns), column = at % columns;
        const [width, height] = [1 / columns, 1 / rows], gap = columns === 1 ? 0 : 0.035;
        const x = [column * width + (column ? gap / 2 : 0), (column + 1) * width - (column < columns - 1 ? gap / 2 : 0)];
        const y = [1 - (row + 1) * height + 0.02, 1 - row * height - 0.075 * Math.min(1, 3 / rows) - 0.02];
        axes[`xaxis${id}`] = axis("", { domain: x, anchor: `y${id}`, showticklabels: false, showgrid: false, range: [-0.5, names.length - 0.5] });
        axes[`yaxis${id}`] = axis("", { domain: y, anchor: `x${id}`, range: [0, top], nticks: 5, showticklabels: column === 0 });
        data.push({
          type: "bar", x: names.map((_, i) => i), y: fair[a.key], xaxis: `x${id}`, yaxis: `y${id}`,
          marker: { color: colour(a) }, customdata: names.map((name, i) => [asText(name), rates[i]]),
          hovertemplate: "%{customdata[0]}, available %{customdata[1]:.1f} %<br>%{y:.2f} of a fair share<extra></extra>",
        });
        if (never) shapes.push({ type: "rect", xref: `x${id}`, yref: `y${id}`, x0: -0.5, x1: never - 0.5, y0: 0, y1: top, fillcolor: css("--panel"), line: { width: 0 }, layer: "below" });
        shapes.push({ type: "line", xref: `x${id}`, yref: `y${id}`, x0: -0.5, x1: names.length - 0.5, y0: 1, y1: 1, line: { color: css("--ink"), width: 1.2, dash: "dash" } });
        annotations.push({
          text: `<b>${a.name}</b>  ${(100 * a.bias).toFixed(1)} % bias`, xref: "paper", yref: "paper", x: x[0], y: y[1],
          xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 13 },
        });
      });
      const note = { showarrow: false, xref: "x", yref: "y", font: { size: 11.5, color: css("--soft") } };
      if (never / names.length > 0.08) annotations.push({ ...note, text: "never<br>available", x: never / 2 - 0.5, y: top / 2 });
      annotations.push({ ...note, text: "fair", x: names.length - 0.5, y: 1, xanchor: "left", yanchor: "middle" });
      return { data, layout: { ...axes, annotations, shapes, bargap: 0, margin: { l: 8, r: 30, t: 12, b: 8 } } };
    },
    overTime() {
      const { x, curves, floor, dates } = figures.overTime;
      const data = algorithms.map((a) => ({
        type: "scatter", mode: "lines", name: a.name, x, y: curves[a.key],
        line: { color: colour(a), width: a.advised || a.key === "fedavg" ? 3 : 1.4, dash: dashed(a) },
        hovertemplate: "%{y:.1f} %",
      }));
      const shapes = floor > 0 ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: floor, y1: floor, line: { color: css("--soft"), width: 1.2, dash: "dot" } }] : [];
      return {
        data,
        layout: {
          xaxis: axis(dates ? "" : "rounds"), yaxis: axis("bias in %", { rangemode: "tozero" }), shapes,
          hovermode: "x unified", showlegend: true,
          legend: isNarrow() ? { font: { size: 12 }, orientation: "h", y: -0.2, yanchor: "top" } : { font: { size: 12 } },
        },
      };
    },
    groups(element) {
      const { x, dates, names, panels } = figures.groups[Number(element.dataset.table)], titles = Object.keys(panels);
      const stacked = isNarrow(), data = [], axes = {}, annotations = [];
      const top = Math.max(1.5, ...titles.flatMap((title) => panels[title].flat())) * 1.05;
      if (stacked) element.style.height = `${220 + 240 * titles.length}px`;
      titles.forEach((title, at) => {
        const id = at === 0 ? "" : String(at + 1), n = titles.length;
        const span = stacked ? [1 - (at + 1) / n + 0.03, 1 - at / n - 0.07] : [at / n + (at ? 0.03 : 0), (at + 1) / n - 0.02];
        axes[`xaxis${id}`] = axis(dates ? "" : "rounds", { domain: stacked ? [0, 1] : span, anchor: `y${id}`, nticks: 6 });
        axes[`yaxis${id}`] = axis("", { domain: stacked ? span : [0, 0.92], anchor: `x${id}`, range: [0, top] });
        names.forEach((name, g) => data.push({
          type: "scatter", mode: "lines", name: asText(name), legendgroup: name, showlegend: at === 0, x, y: panels[title][g],
          xaxis: `x${id}`, yaxis: `y${id}`, line: { width: 2, color: PALETTE[g % PALETTE.length], dash: g < PALETTE.length ? "solid" : "dot" },
          hovertemplate: `${asText(name)}: %{y:.2f}<extra></extra>`,
        }));
        annotations.push({ text: `<b>${title}</b>`, xref: "paper", yref: "paper", x: stacked ? 0 : span[0], y: stacked ? span[1] : 0.94, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 13 } });
      });
      const shapes = titles.map((_, at) => ({ type: "line", xref: "paper", yref: `y${at === 0 ? "" : at + 1}`, x0: 0, x1: 1, y0: 1, y1: 1, line: { color: css("--ink"), width: 1.2, dash: "dash" } }));
      return { data, layout: { ...axes, annotations, shapes, showlegend: true, legend: stacked ? { orientation: "h", y: -0.08, yanchor: "top" } : {} } };
    },
    heat() {
      const { x, y, z, active, clients } = figures.heat;
      const scale = isDark() ? [[0, css("--panel")], [1, "#7fb0e6"]] : [[0, css("--panel")], [1, "#1f4e86"]];
      return {
        data: [
          { type: "heatmap", x, y: y.map((_, n) => n), z, zmin: 0, zmax: 100, colorscale: scale, showscale: false,
            hovertemplate: "%{x}<br>%{z} % available<extra></extra>" },
          { type: "scatter", mode: "lines", x, y: active, yaxis: "y2", line: { color: css("--accent"), width: 1.2 }, fill: "tozeroy",
            hovertemplate: `%{x}<br>%{y:.1f} of ${clients} available<extra></extra>` },
        ],
        layout: {
          xaxis: axis(typeof x[0] === "number" ? "round" : "", { showgrid: false }),
          yaxis: axis("client", { domain: [0, 0.8], autorange: "reversed", showgrid: false, tickmode: "array",
            tickvals: y.length <= 40 ? y.map((_, n) => n) : [0, y.length - 1], ticktext: (y.length <= 40 ? y : [y[0], y[y.length - 1]]).map(asText) }),
          yaxis2: axis("available", { domain: [0.84, 1], rangemode: "tozero", nticks: 4 }),
        },
      };
    },
    hours() {
      return figures.hours && {
        data: [{ type: "bar", x: figures.hours.map((_, h) => h), y: figures.hours, marker: { color: css("--accent") }, hovertemplate: "%{x}:00 %{y:.1f} %<extra></extra>" }],
        layout: { xaxis: axis("hour of the day", { dtick: 3, showgrid: false }), yaxis: axis("% available", { rangemode: "tozero" }), bargap: 0.15 },
      };
    },
    echo: () => histogram(figures.echo, "staleness in rounds", "log"),
    stays: () => histogram(figures.stays, "rounds", "linear"),
    away: () => histogram(figures.away, "rounds", "linear"),
  };

  const redraw = () => {
    for (const element of document.querySelectorAll("[data-figure]")) {
      const figure = draw[element.dataset.figure](element);
      if (figure) Plotly.react(element, figure.data, layout(figure.layout), CONFIG);
      else element.closest("figure").hidden = true;
    }
  };

  const button = document.getElementById("theme");
  const setTheme = (theme) => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    button.textContent = `theme: ${theme || "system"}`;
    try { theme ? localStorage.setItem("fedawe-theme", theme) : localStorage.removeItem("fedawe-theme"); } catch { /* private */ }
    redraw();
  };
  button.addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  prefersDark.addEventListener("change", redraw);
  window.matchMedia("(max-width: 699px)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { printing = true; redraw(); });
  window.addEventListener("afterprint", () => { printing = false; redraw(); });
  let stored = null;
  try { stored = localStorage.getItem("fedawe-theme"); } catch { /* private */ }
  setTheme(stored);
})();
