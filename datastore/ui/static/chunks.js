// A long list of which only the part near the screen consists of elements. The rest are empty boxes of about the same height.
// Rows may have any height, and may change it.

/**
 * @template Item
 * @typedef {{items: Item[], start: number, element: HTMLElement, isShown: boolean}} Chunk
 */

/**
 * @template Item
 * @typedef {{
 *   render: (item: Item, index: number) => HTMLElement,
 *   height: number,
 *   size?: number,
 * }} Options `render` makes a row, `height` is what most rows have, `size` how many rows a chunk has.
 */

// A row is on the screen if it is so far from the upper and lower end, in pixels.
const MARGIN = 100;

/** @template Item */
export class Chunks {
    /** @param {Options<Item>} options */
    constructor(options) {
        this.options = options;
        this.size = options.size ?? 50;
        this.element = document.createElement("div");
        this.element.className = "chunks";
        /** @type {Chunk<Item>[]} */
        this.chunks = [];
        this.length = 0;
        /** @type {Map<Element, Chunk<Item>>} */
        this.of = new Map();
        this.observer = new IntersectionObserver((entries) => this.#scrolled(entries), {
            rootMargin: "1000px 0px",
        });
    }

    /**
     * Replaces all rows.
     * @param {Item[]} items
     */
    set(items) {
        this.observer.disconnect();
        this.of.clear();
        this.chunks = [];
        this.length = 0;
        this.element.replaceChildren();
        this.push(items);
        // The others are shown when the browser has found out where they are.
        if (this.chunks[0]) {
            this.#show(this.chunks[0]);
        }
    }

    /**
     * Adds rows at the end.
     * @param {Item[]} items
     */
    push(items) {
        const added = document.createDocumentFragment();
        for (let at = 0; at < items.length; ) {
            let chunk = this.chunks.at(-1);
            if (!chunk || chunk.items.length >= this.size) {
                chunk = this.#add(added);
            }
            const part = items.slice(at, at + this.size - chunk.items.length);
            chunk.items.push(...part);
            if (chunk.isShown) {
                const start = this.length;
                chunk.element.append(...part.map((item, index) => this.options.render(item, start + index)));
            } else {
                chunk.element.style.height = `${chunk.items.length * this.options.height}px`;
            }
            this.length += part.length;
            at += part.length;
        }
        this.element.append(added);
    }

    /** @param {DocumentFragment} added */
    #add(added) {
        const element = document.createElement("div");
        /** @type {Chunk<Item>} */
        const chunk = { items: [], start: this.length, element, isShown: false };
        this.chunks.push(chunk);
        this.of.set(element, chunk);
        added.append(element);
        this.observer.observe(element);
        return chunk;
    }

    /**
     * Takes a chunk out. Its rows keep their indexes, and can no longer be shown.
     * @param {number} at
     */
    drop(at) {
        const [chunk] = this.chunks.splice(at, 1);
        if (chunk) {
            this.observer.unobserve(chunk.element);
            this.of.delete(chunk.element);
            chunk.element.remove();
        }
        return chunk;
    }

    /** Makes the shown rows again. */
    refresh() {
        for (const chunk of this.chunks) {
            if (chunk.isShown) {
                this.#fill(chunk);
            }
        }
    }

    /**
     * Scrolls to a row, unless it is on the screen, and returns it.
     * @param {number} index
     * @param {number} [top] where on the screen it is to be
     * @returns {HTMLElement | null}
     */
    reveal(index, top) {
        const chunk = this.chunks.find(({ start, items }) => index >= start && index < start + items.length);
        if (!chunk) {
            return null;
        }
        this.#show(chunk);
        const row = () => /** @type {HTMLElement | null} */ (chunk.element.children.item(index - chunk.start));
        let isMoved = false;
        const moved = new AbortController();
        const scroll = (/** @type {number} */ again) => {
            const box = isMoved ? undefined : row()?.getBoundingClientRect();
            if (box && top !== undefined) {
                scrollBy(0, box.top - top);
            } else if (box && (box.top < MARGIN || box.top > innerHeight - MARGIN)) {
                row()?.scrollIntoView({ block: box.height > innerHeight / 2 ? "start" : "center" });
            }
            // The rows around it get their real heights after that.
            if (again > 0 && !isMoved) {
                requestAnimationFrame(() => scroll(again - 1));
            } else {
                moved.abort();
            }
        };
        for (const name of ["wheel", "touchmove", "keydown"]) {
            addEventListener(name, () => (isMoved = true), { passive: true, signal: moved.signal });
        }
        scroll(8);
        return row();
    }

    /** @param {IntersectionObserverEntry[]} entries */
    #scrolled(entries) {
        for (const entry of entries) {
            const chunk = this.of.get(entry.target);
            if (!chunk) {
                continue;
            }
            if (entry.isIntersecting) {
                this.#show(chunk);
            } else if (chunk.isShown && entry.boundingClientRect.height > 0) {
                this.#hide(chunk, entry.boundingClientRect.height);
            }
        }
    }

    /** @param {Chunk<Item>} chunk */
    #show(chunk) {
        if (!chunk.isShown) {
            chunk.isShown = true;
            this.#fill(chunk);
            chunk.element.style.height = "";
        }
    }

    /** @param {Chunk<Item>} chunk */
    #fill(chunk) {
        const { items, start } = chunk;
        chunk.element.replaceChildren(...items.map((item, index) => this.options.render(item, start + index)));
    }

    /**
     * @param {Chunk<Item>} chunk
     * @param {number} height
     */
    #hide(chunk, height) {
        // What has the focus stays.
        if (!chunk.element.contains(document.activeElement)) {
            chunk.isShown = false;
            chunk.element.style.height = `${height}px`;
            chunk.element.replaceChildren();
        }
    }
}
