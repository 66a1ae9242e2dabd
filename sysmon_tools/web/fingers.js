// SPDX-License-Identifier: Apache-2.0
// Fingers on a page of sysmon: one moves what is seen of time, two zoom it. The moments that they touched stay under them.
const fingersOn = (surface, seen, show) => {
    "use strict";
    const apart = 12, fingers = new Map();
    const place = event => (event.clientX - surface.getBoundingClientRect().left) / surface.clientWidth;
    const moment = at => seen()[0] + (seen()[1] - seen()[0]) * at;

    surface.addEventListener("pointerdown", event => {
        if (event.pointerType !== "touch" || fingers.size === 2) return;
        const at = place(event);
        fingers.set(event.pointerId, { at, moment: moment(at) });
        surface.setPointerCapture(event.pointerId);
    });
    surface.addEventListener("pointermove", event => {
        const finger = fingers.get(event.pointerId);
        if (!finger) return;
        finger.at = place(event);
        const [first, second] = fingers.values();
        let length = seen()[1] - seen()[0];
        if (second) {
            if (Math.abs(second.at - first.at) * surface.clientWidth < apart) return;
            length = (second.moment - first.moment) / (second.at - first.at);
        }
        if (length > 0) show(first.moment - first.at * length, first.moment + (1 - first.at) * length);
    });
    const lifted = event => {
        fingers.delete(event.pointerId);
        for (const finger of fingers.values()) finger.moment = moment(finger.at);
    };
    surface.addEventListener("pointerup", lifted);
    surface.addEventListener("pointercancel", lifted);
};
