// Requests to the datastore. The page has no other source of data.

/**
 * Where something is: parameters of the API, and of this page's own addresses.
 * @typedef {Record<string, string | number | undefined | null>} Query
 */

/** An answer that is no success. */
export class Refusal extends Error {
    /**
     * @param {number} status
     * @param {string} message
     */
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

/** @param {Query} query */
function search(query) {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
        if (value !== undefined && value !== null && value !== "") {
            parameters.set(name, String(value));
        }
    }
    return parameters.toString();
}

/**
 * The address of a route.
 * @param {string} route
 * @param {Query} query
 */
export function api(route, query) {
    return `/api/${route}?${search(query)}`;
}

/**
 * The address of this page with another view.
 * @param {Query} query
 * @param {string} [fragment]
 */
export function page(query, fragment) {
    const parameters = search(query);
    return `/${parameters && "?"}${parameters}${fragment ? `#${encodeURIComponent(fragment)}` : ""}`;
}

/**
 * The answer to a request. Whoever is not signed in is led to the form for it.
 * @param {string} url
 * @param {RequestInit} [options]
 */
export async function get(url, options) {
    const response = await fetch(url, { credentials: "same-origin", ...options });
    if (response.status === 401) {
        const here = location.pathname + location.search + location.hash;
        location.assign(`/sign-in?next=${encodeURIComponent(here)}`);
        // The page is left: what waits for this answer must not go on.
        await new Promise(() => {});
    }
    if (!response.ok) {
        throw new Refusal(response.status, reason(await response.text(), response.status));
    }
    return response;
}

/**
 * Why a request is refused: the text of a problem document, of Burrito's JSON, or the body itself.
 * @param {string} body
 * @param {number} status
 */
function reason(body, status) {
    try {
        const problem = JSON.parse(body);
        return String(problem.detail ?? problem.message ?? problem.error ?? body);
    } catch {
        return body.trim().slice(0, 500) || `the datastore answered ${status}`;
    }
}

/**
 * @param {string} route
 * @param {Query} query
 * @param {(text: string) => any} [parse]
 * @returns {Promise<any>}
 */
export async function json(route, query, parse = JSON.parse) {
    const response = await get(api(route, query));
    return parse(await response.text());
}

/**
 * JSON whose numbers keep their text: `JSON.stringify` writes 9007199254740993 and 1.50 as they came. Browsers that do not tell the
 * text of a number round it.
 * @param {string} text
 * @returns {any}
 */
export function exactly(text) {
    const { rawJSON } = /** @type {{rawJSON?: (text: string) => object}} */ (JSON);
    const keep = (/** @type {string} */ _, /** @type {unknown} */ value, /** @type {{source?: string}} */ context = {}) => {
        const { source } = context;
        return rawJSON && typeof value === "number" && source !== undefined && source !== String(value) ? rawJSON(source) : value;
    };
    return hasOtherNumbers(text) ? JSON.parse(text, keep) : JSON.parse(text);
}

/**
 * Whether a number may have another text once it is parsed. Most texts have none, and are read faster.
 * @param {string} text
 */
function hasOtherNumbers(text) {
    for (const [, number] of text.matchAll(/[:[,]\s*(-?\d[\d.eE+-]*)(?=\s*[,}\]])/g)) {
        if (String(Number(number)) !== number) {
            return true;
        }
    }
    return false;
}

/**
 * The same as `json`; `null` where there is no such object.
 * @param {string} route
 * @param {Query} query
 * @param {(text: string) => any} [parse]
 * @returns {Promise<any>}
 */
export async function jsonIfAny(route, query, parse) {
    try {
        return await json(route, query, parse);
    } catch (error) {
        if (error instanceof Refusal && error.status === 404) {
            return null;
        }
        if (error instanceof SyntaxError) {
            return undefined;
        }
        throw error;
    }
}

/**
 * The text of an answer as it comes.
 * @param {Response} response
 */
export async function* texts(response) {
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    try {
        while (reader) {
            const { done, value } = await reader.read();
            if (done) {
                yield decoder.decode();
                return;
            }
            yield decoder.decode(value, { stream: true });
        }
    } finally {
        // It fails where the connection is broken.
        reader?.cancel().catch(() => {});
    }
}
