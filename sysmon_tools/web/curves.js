// SPDX-License-Identifier: Apache-2.0
// Draws the curves of a page of sysmon: zooms by pointer, wheel and keys, and takes finer values as soon as few enough are seen.
(() => {
    "use strict";
    const page = JSON.parse(document.getElementById("curves").textContent);
    const told = document.getElementById("told");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const ink = dark ? "#ccc" : "#444", grid = dark ? "#333" : "#ddd", shade = dark ? "#fff1" : "#0001";
    const whole = [page.from, page.to];
    const enough = 300, height = 240;
    const room = document.getElementById("pictures");
    let seen = whole.slice(), level = null, charts = [];

    const times = one => Array.from({ length: one.count }, (_, i) => one.start + i * one.step);
    for (const one of page.levels) one.times = times(one);

    // The coarsest values that still fill the width.
    const wanted = () => page.levels.find(one => (seen[1] - seen[0]) / one.step >= enough) ?? page.levels.at(-1);

    function spelled(value, unit) {
        if (value == null) return "–";
        if (unit === "B" || unit === "B/s") {
            let at = 0;
            for (; Math.abs(value) >= 1000 && at < 5; at++) value /= 1024;
            return `${Number(value.toPrecision(3))} ${["", "Ki", "Mi", "Gi", "Ti", "Pi"][at]}${unit}`;
        }
        return `${Number(value.toPrecision(4))} ${unit === "1" ? "" : unit}`.trim();
    }

    function rows(panel) {
        const of = level.panels[panel];
        return [level.times, ...of.flatMap(curve => curve.low ? [curve.mean, curve.low, curve.high] : [curve.mean])];
    }

    function show(from, to) {
        const length = Math.min(Math.max(to - from, page.levels.at(-1).step * 4), whole[1] - whole[0]);
        const begin = Math.min(Math.max(from, whole[0]), whole[1] - length);
        seen = [begin, begin + length];
        const next = wanted();
        charts.forEach((chart, number) => {
            if (next !== level) {
                const before = level;
                level = next;
                chart.setData(rows(number), false);
                level = before;
            }
            chart.setScale("x", { min: seen[0], max: seen[1] });
        });
        level = next;
        const at = time => new Date(time * 1000).toLocaleString();
        told.textContent = `${at(seen[0])} to ${at(seen[1])}, a value each ${level.says}; finest: ${page.levels.at(-1).says}`;
    }

    // What is missing, and what happened, behind the curves.
    function marks(chart) {
        const { ctx, bbox } = chart;
        ctx.save();
        ctx.beginPath();
        ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
        ctx.clip();
        ctx.fillStyle = shade;
        for (const [from, to] of page.gaps) {
            const left = chart.valToPos(from, "x", true), right = chart.valToPos(to, "x", true);
            ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
        }
        ctx.strokeStyle = "#c33";
        ctx.setLineDash([4, 3]);
        for (const [time] of page.events) {
            const at = chart.valToPos(time, "x", true);
            ctx.beginPath();
            ctx.moveTo(at, bbox.top);
            ctx.lineTo(at, bbox.top + bbox.height);
            ctx.stroke();
        }
        ctx.restore();
    }

    function draw(panel, number) {
        const series = [{}], bands = [];
        for (const curve of panel.curves) {
            const value = (_, one) => spelled(one, panel.unit);
            series.push({ label: curve.path, stroke: curve.colour, width: 1.5, value });
            if (curve.band) {
                const at = series.length;
                for (const side of ["least", "most"])
                    series.push({ label: side, value, width: 0, stroke: "transparent", points: { show: false } });
                bands.push({ series: [at + 1, at], fill: curve.colour + "33" });
            }
        }
        const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
        const chart = new uPlot({
            width: room.clientWidth, height, series, bands,
            scales: { x: { time: true } },
            axes: [axis, { ...axis, size: 90, values: (_, values) => values.map(one => spelled(one, panel.unit)) }],
            cursor: { sync: { key: "sysmon" }, drag: { x: true, y: false, setScale: false } },
            hooks: {
                drawClear: [marks],
                setSelect: [made => {
                    if (made.select.width > 2)
                        show(made.posToVal(made.select.left, "x"), made.posToVal(made.select.left + made.select.width, "x"));
                    made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
                }],
            },
        }, rows(number), room);
        fingersOn(chart.over, () => seen, show);
        chart.over.addEventListener("dblclick", () => show(...whole));
        chart.over.addEventListener("wheel", event => {
            event.preventDefault();
            const at = chart.posToVal(event.offsetX, "x"), by = event.deltaY > 0 ? 1.25 : 0.8;
            if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 500);
            else show(at - (at - seen[0]) * by, at + (seen[1] - at) * by);
        }, { passive: false });
        return chart;
    }

    const pan = part => show(seen[0] + (seen[1] - seen[0]) * part, seen[1] + (seen[1] - seen[0]) * part);
    const zoom = by => { const middle = (seen[0] + seen[1]) / 2, half = (seen[1] - seen[0]) / 2 * by; show(middle - half, middle + half); };
    const keys = { ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(...whole), Home: () => show(...whole) };
    addEventListener("keydown", event => {
        if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { keys[event.key](); event.preventDefault(); }
    });
    addEventListener("resize", () => charts.forEach(chart => chart.setSize({ width: room.clientWidth, height })));

    level = wanted();
    charts = page.panels.map(draw);
    const asked = /^#([\d.]+)-([\d.]+)$/.exec(location.hash);
    show(...(asked ? [Number(asked[1]), Number(asked[2])] : whole));
})();
