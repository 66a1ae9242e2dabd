// SPDX-License-Identifier: Apache-2.0
// Zooms and moves the chart of a boot in time. The bars are in the page already, in milliseconds: only what is seen of them changes.
(() => {
    "use strict";
    const bars = document.getElementById("bars"), axis = document.getElementById("axis");
    const lines = document.getElementById("lines"), told = document.getElementById("told");
    const whole = [Number(bars.dataset.from), Number(bars.dataset.to)], height = Number(bars.dataset.height);
    const shortest = 10, apart = 90;
    let seen = whole.slice();

    const spelled = (time, step) => step < 1000 ? `${(time / 1000).toFixed(step < 100 ? 2 : 1)} s`
        : time < 60000 ? `${Math.round(time / 1000)} s`
        : `${Math.floor(time / 60000)} min ${Math.round(time % 60000 / 1000)} s`;

    function marks() {
        const wanted = (seen[1] - seen[0]) * apart / (axis.clientWidth || 1);
        const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000];
        const step = steps.find(one => one >= wanted) ?? steps.at(-1);
        const labels = [], strokes = [];
        for (let time = Math.ceil(seen[0] / step) * step; time <= seen[1]; time += step) {
            const label = document.createElement("span");
            label.textContent = spelled(time, step);
            label.style.left = `${(time - seen[0]) / (seen[1] - seen[0]) * 100}%`;
            labels.push(label);
            const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
            for (const [name, value] of [["x1", time], ["x2", time], ["y1", 0], ["y2", height]]) stroke.setAttribute(name, value);
            strokes.push(stroke);
        }
        axis.replaceChildren(...labels);
        lines.replaceChildren(...strokes);
    }

    function show(from, to) {
        const length = Math.min(Math.max(to - from, shortest), whole[1] - whole[0]);
        const begin = Math.min(Math.max(from, whole[0]), whole[1] - length);
        seen = [begin, begin + length];
        bars.setAttribute("viewBox", `${begin} 0 ${length} ${height}`);
        marks();
    }

    const pan = part => show(seen[0] + (seen[1] - seen[0]) * part, seen[1] + (seen[1] - seen[0]) * part);
    const zoom = (by, at = (seen[0] + seen[1]) / 2) => show(at - (at - seen[0]) * by, at + (seen[1] - at) * by);
    const under = event => seen[0] + (seen[1] - seen[0]) * (event.clientX - bars.getBoundingClientRect().left) / bars.clientWidth;
    const all = () => show(...whole);

    // A drag moves the chart; a click, or a tap, says in words what is there, so that it can be selected.
    fingersOn(bars, () => seen, show);
    let grip = null, moved = false;
    bars.addEventListener("pointerdown", event => {
        if (event.button) return;
        moved = grip !== null; // A second finger is no tap.
        grip = event.clientX;
        bars.setPointerCapture(event.pointerId);
    });
    bars.addEventListener("pointermove", event => {
        if (grip === null || !moved && Math.abs(event.clientX - grip) < 4) return;
        moved = true;
        if (event.pointerType === "touch") return;
        pan((grip - event.clientX) / bars.clientWidth);
        grip = event.clientX;
    });
    bars.addEventListener("pointerup", event => {
        const row = document.elementsFromPoint(event.clientX, event.clientY).map(one => one.closest("g[data-row]")).find(Boolean);
        if (grip !== null && !moved && row) told.textContent = row.querySelector("title").textContent;
        grip = null;
    });
    bars.addEventListener("pointercancel", () => { grip = null; });
    bars.addEventListener("dblclick", all);
    bars.addEventListener("wheel", event => {
        if (event.ctrlKey || event.metaKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, under(event));
        else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 500);
        else return; // The page is long: the wheel alone scrolls it.
        event.preventDefault();
    }, { passive: false });

    const keys = { ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: all };
    addEventListener("keydown", event => {
        if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { keys[event.key](); event.preventDefault(); }
    });
    for (const [name, does] of [["closer", keys["+"]], ["wider", keys["-"]], ["all", all]])
        document.getElementById(name).addEventListener("click", does);
    addEventListener("resize", marks);

    const asked = /^#([\d.]+)-([\d.]+)$/.exec(location.hash);
    show(...(asked ? [Number(asked[1]) * 1000, Number(asked[2]) * 1000] : whole));
})();
