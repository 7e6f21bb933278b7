// What the address asks for: `/?namespace=N&layer=L&run=R&attempt=A&view=V`.

import { page } from "./api.js";
import { fill, foreign, h, isTyping } from "./dom.js";
import { failed } from "./failures.js";
import { layers, namespaces, runs } from "./lists.js";
import { RunView } from "./run.js";
import { visibleText } from "./text.js";

/** @param {URLSearchParams} address */
function crumbs(address) {
    /** @type {Record<string, string>} */
    const query = {};
    const links = [];
    for (const name of ["namespace", "layer", "run"]) {
        const value = address.get(name);
        if (!value) {
            break;
        }
        query[name] = value;
        links.push(h("li", null, h("a", { href: page(query), title: `${name} ${visibleText(value)}` }, foreign(value))));
    }
    links.at(-1)?.querySelector("a")?.setAttribute("aria-current", "page");
    const nav = document.getElementById("crumbs");
    if (nav && links.length > 0) {
        fill(nav, h("ol", null, links));
    }
    const title = ["run", "layer", "namespace"].map((name) => query[name]).filter(Boolean);
    document.title = [...title.map((part) => visibleText(part ?? "")), "Plancha"].join(" · ");
}

async function show() {
    const view = document.getElementById("view");
    if (!view) {
        return;
    }
    const address = new URLSearchParams(location.search);
    const [namespace, layer, run] = ["namespace", "layer", "run"].map((name) => address.get(name));
    crumbs(address);
    const loading = setTimeout(() => fill(view, h("p", { class: "loading" }, "Loading…")), 150);
    try {
        if (namespace && layer && run) {
            await new RunView(view, { namespace, layer, run }, address).start();
        } else if (namespace && layer) {
            await runs(view, namespace, layer);
        } else if (namespace) {
            await layers(view, namespace);
        } else {
            await namespaces(view);
        }
    } catch (error) {
        fill(view, h("h1", { class: "unseen" }, document.title), failed(error));
    } finally {
        clearTimeout(loading);
    }
}

// `/` goes to the field that filters or searches.
addEventListener("keydown", (event) => {
    if (event.key === "/" && !isTyping(event)) {
        /** @type {HTMLElement | null} */ (document.querySelector("input[type=search]"))?.focus();
        event.preventDefault();
    }
});

void show();
