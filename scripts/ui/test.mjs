// test.mjs BIN [NAME]: looks at the page of a real datastore in Chromium, with the programs in the directory BIN. Screenshots are stored
// in target/e2e/ui. With NAME, only the checks whose name has it. scripts/e2e ui starts it.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

import * as data from "./data.mjs";
import { Datastore, ODD, until } from "./servers.mjs";

const root = resolve(import.meta.dirname, "../..");
const require = createRequire(join(root, "target/e2e/"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const shots = join(root, "target/e2e/ui");
mkdirSync(shots, { recursive: true });

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };

const datastore = await Datastore.start(resolve(process.argv[2] ?? join(root, "target/debug")));
const browser = await chromium.launch({ executablePath: process.env.PLANCHA_CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
const wrong = [];

/** A page whose requests to other hosts, dialogs, errors and refused scripts fail the test. */
async function open(path, { viewport = DESKTOP, colorScheme = "light", token = datastore.visitor, hasClock = false } = {}) {
    const context = await browser.newContext({ viewport, colorScheme, extraHTTPHeaders: token ? { authorization: token } : {} });
    const page = await context.newPage();
    if (hasClock) await page.clock.install();
    page.on("request", (request) => request.url().startsWith(`${datastore.url}/`) || wrong.push(`a request to ${request.url()}`));
    page.on("dialog", (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); void dialog.dismiss(); });
    page.on("pageerror", (error) => wrong.push(`an error on ${page.url()}: ${error.stack}`));
    page.on("console", (message) => /Content.Security.Policy|Trusted|Refused/.test(message.text()) && wrong.push(`the console: ${message.text()}`));
    // While the page is changed: its files from the sources, without a build.
    if (process.env.PLANCHA_UI_SOURCES) {
        await page.route("**/ui/*", async (route) => {
            const path = join(root, "datastore/ui/static", new URL(route.request().url()).pathname.slice("/ui/".length));
            const contentType = path.endsWith(".js") ? "text/javascript" : path.endsWith(".css") ? "text/css" : "image/svg+xml";
            await route.fulfill({ response: await route.fetch(), status: 200, contentType, body: readFileSync(path) });
        });
    }
    await page.goto(datastore.url + path);
    return page;
}

const run = (layer, more = "") => `/?namespace=team-a&layer=${layer}&run=${layer}-plan${more}`;

/** One part of the test. */
async function check(name, part) {
    if (!name.includes(process.argv[3] ?? "")) return;
    const start = Date.now();
    await part();
    for (const context of browser.contexts()) {
        for (const page of context.pages()) await page.unrouteAll({ behavior: "ignoreErrors" });
        await context.close();
    }
    assert.deepEqual(wrong, [], name);
    console.log(`ok  ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
}

const texts = (page, selector) => page.locator(selector).allTextContents();

await datastore.seed();

await check("a caller without a token signs in by the form, comes back, and signs out", async () => {
    const wanted = run("shop", "#output.address");
    const page = await open(wanted, { token: null });
    await page.waitForURL("**/sign-in?**");
    assert.equal(new URL(page.url()).searchParams.get("next"), wanted);
    await page.getByLabel("Token").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText("The token is unknown or has expired.").waitFor();
    await page.getByLabel("Token").fill(datastore.visitor);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(datastore.url + wanted);
    await page.locator(".item.target").waitFor();
    for (const [view, text] of [["log", "Download"], ["steps", "show json"], ["files", "run.log"]]) {
        await page.goto(`${datastore.url}${run("shop", `&view=${view}`)}`);
        await page.getByText(text).first().waitFor();
    }
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL("**/sign-in");
    await page.goto(datastore.url + wanted);
    await page.waitForURL("**/sign-in?**");
});

await check("namespaces, layers with their status, and runs", async () => {
    const page = await open("/");
    await page.getByRole("link", { name: "team-a" }).click();
    const shop = page.getByRole("row").filter({ hasText: "shop" });
    await shop.getByText("destructively changed").waitFor();
    assert.match(await shop.textContent(), /\+3.*~4.*−3.*0d4f3a12c5.*tofu 1\.10\.1/);
    await shop.getByRole("link", { name: "shop" }).click();
    await page.getByText("the policy refuses to delete").waitFor();
    assert.match(await page.locator(".facts").textContent(), /^Statusdestructively changedLast check(now|\d+ (second|minute)s? ago)Message/);
    await page.goto(`${datastore.url}/?namespace=team-a&layer=many`);
    await page.getByText("no changes").first().waitFor();
    const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await background();
    await page.getByRole("button", { name: "Colours: system" }).click();
    await page.getByRole("button", { name: "Colours: light" }).click();
    assert.notEqual(await background(), light);
    await page.reload();
    await page.getByRole("button", { name: "Colours: dark" }).waitFor();
    assert.notEqual(await background(), light);
    await page.getByText("no changes").first().waitFor();
    assert.equal(await page.locator("tbody tr").count(), 20);
    await page.getByRole("button", { name: "Show more" }).click();
    await until("30 runs", async () => (await page.locator("tbody tr").count()) === 30);
    assert.ok(await page.getByRole("button", { name: "Show more" }).isHidden());
});

await check("a plan: causes, moves, imports, diffs, sensitive and unknown values", async () => {
    const page = await open(run("shop"), { viewport: { width: 1280, height: 6000 } });
    await page.getByRole("button", { name: "Expand all" }).click();
    const item = (address) => page.locator(".item").filter({ has: page.locator(".address", { hasText: new RegExp(`^${address.replace(/[[\]().]/g, "\\$&")}$`) }) }).first();
    const replaced = await item("aws_instance.web[1]").textContent();
    assert.match(replaced, /because of ami/);
    assert.match(replaced, /forces replacement/);
    assert.match(replaced, /known after apply/);
    assert.match(await item("aws_route53_zone.main").textContent(), /Moved from.*aws_route53_zone\.primary/);
    assert.match(await item("aws_s3_bucket.adopted").textContent(), /Imported by ID.*adopted/);
    const policy = item("aws_iam_policy.reader");
    assert.deepEqual(await policy.locator(".line.added bdi").allTextContents(), ['        "s3:GetObject",', '        "s3:GetObjectVersion",', '        "s3:DeleteObject"']);
    await policy.getByText("unchanged lines").first().click();
    const script = item("aws_instance.web[0]");
    assert.match(await script.locator(".line.removed").textContent(), /agent-1\.9\.2/);
    assert.equal(await script.locator(".line.added").count(), 1);
    await until("all sections are shown", async () => (await page.locator("main").textContent()).includes("answers 503"));
    const page_text = await page.locator("main").textContent();
    assert.match(page_text, /\(sensitive value\)/);
    assert.ok(!/"old"|"new"|"secret"/.test(await item("aws_db_instance.main").textContent()));
    for (const title of ["Outputs", "Checks", "Changed outside of the code", "https://example.com answers 503"]) assert.ok(page_text.includes(title), title);
    const odd = await item("example_thing.odd").textContent();
    for (const part of ["serial9007199254740992 becomes 9007199254740993", "ratio1.50 becomes 2.50", "?", "explode"]) assert.ok(odd.replaceAll(" → ", "").includes(part), `${part} in ${odd}`);
    assert.ok(!odd.includes("no change"), odd);
    for (const part of ['name"caféU+00E9 am Eck" becomes "cafe\u0301U+0065 U+0301 am Eck"', "-caféU+00E9+cafe\u0301U+0065 U+0301"]) assert.ok(odd.replaceAll(" → ", "").includes(part), `${part} in ${odd}`);
    assert.match((await texts(page, ".kinds .kind")).at(-1), /^\? 1 explode$/);
    assert.equal(await page.locator(".warning:not([hidden])").count(), 0);
});

await check("a plan: what the filter finds, and links", async () => {
    const page = await open(run("shop"));
    const result = page.locator(".toolbar .result");
    await until("all is counted", async () => (await result.textContent()) === "16 changes, 1 change outside of the code, 2 outputs, 2 checks");
    for (const [words, found, shown] of [
        ["moved", "1 of 16 changes", ["aws_route53_zone.main"]],
        ["imported", "1 of 16 changes", ["aws_s3_bucket.adopted"]],
        ["replaced", "2 of 16 changes", ["aws_instance.web[1]", "aws_instance.batch"]],
        ["deposed byebye", "1 of 16 changes", ["aws_security_group.old"]],
        ["tainted", "1 of 16 changes", ["aws_instance.batch"]],
        ["explode", "1 of 16 changes", ["example_thing.odd"]],
        ["invoked aftercreate", "1 of 16 changes", ["action.aws_lambda_invoke.notify"]],
        ["fail health", "0 of 16 changes, 1 check", ["check.health"]],
        ["10.0.0.4", "0 of 16 changes, 1 output", ["address"]],
    ]) {
        await page.getByRole("searchbox").fill(words);
        const expected = JSON.stringify([found, shown]);
        await until(`${words}: ${expected}`, async () => JSON.stringify([await result.textContent(), await texts(page, ".item .address")]) === expected);
    }
    const missing = page.locator(".plan > .warning");
    assert.ok(await missing.isHidden());
    for (const [fragment, address] of [["nope.nope", null], ["check.health", "check.health"], ["%3Ci%3E", null], ["check%3A%20check.health", "check.health"], ["aws_security_group.old", "aws_security_group.old"]]) {
        await page.evaluate((fragment) => (location.hash = fragment), fragment);
        if (address) {
            await page.locator(".item.target .address").getByText(address, { exact: true }).waitFor();
            assert.ok(await missing.isHidden());
        } else {
            await missing.getByText(`${decodeURIComponent(fragment)} is not among the changes of this plan.`).waitFor();
        }
    }
});

await check("a plan that is incomplete, or is not shown as a whole", async () => {
    const page = await open("/");
    const warnings = async (more) => {
        await page.route("**/api/changes?*", async (route) => {
            const response = await route.fetch();
            await route.fulfill({ response, json: { ...(await response.json()), ...more } });
        });
        await page.goto(`${datastore.url}${run("shop")}`);
        await page.locator(".item").first().waitFor();
        return texts(page, ".warning:not([hidden])");
    };
    assert.deepEqual(await warnings({ errored: true, truncated: { resources: 0, attributes: 1 } }), [
        "Planning failed: this is only a part of the plan.",
        "1 attribute is left out here. The plan text has all of them.",
    ]);
    assert.deepEqual(await warnings({ truncated: { resources: 1000, attributes: 2 } }), ["1,000 resources and 2 attributes are left out here. The plan text has all of them."]);
    assert.deepEqual(await warnings({ errored: false, truncated: { resources: 0, attributes: 0 } }), []);
});

await check("5,000 changes: filter, expand, links, keys", async () => {
    const page = await open(run("fleet"));
    await page.locator(".item").first().waitFor();
    const times = () => page.evaluate(() => {
        const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0;
        return `first paint after ${Math.round(paint)} ms, changes after ${Math.round(performance.now())} ms`;
    });
    console.log(`    ${await times()}, the list of changes is made`);
    await page.reload();
    await page.locator(".item").first().waitFor();
    console.log(`    ${await times()}, it is stored`);
    const elements = () => page.evaluate(() => document.querySelectorAll("*").length);
    assert.ok((await elements()) < 4_000, `only what is near the screen has elements: ${await elements()}`);
    const result = page.locator(".toolbar .result");
    assert.equal(await result.textContent(), "5,000 changes");
    await page.evaluate(() => {
        window.tasks = [];
        new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ["longtask"] });
    });
    await page.keyboard.press("/");
    await page.keyboard.type("region service_17[");
    await until("the text filters", async () => /^\d\d of/.test(await result.textContent()));
    for (const address of await texts(page, ".item .address")) assert.match(address, /service_17\[/);
    await page.keyboard.press("Escape");
    await until("no filter", async () => (await result.textContent()) === "5,000 changes");
    await page.getByRole("button", { name: /714 replace/ }).click();
    assert.equal(await result.textContent(), "714 of 5,000 changes");
    await page.getByRole("button", { name: "Expand all" }).click();
    assert.match(await page.locator(".item").first().textContent(), /forces replacement/);
    assert.ok((await elements()) < 12_000, `only what is near the screen has elements: ${await elements()}`);
    console.log(`    the longest pause while filtering and expanding: ${Math.round(Math.max(0, ...(await page.evaluate(() => window.tasks))))} ms`);
    const address = 'module.region["eu-west-1"].module.cluster[4].aws_ecs_service.service_36[4896]';
    await page.goto(`${datastore.url}${run("fleet")}#${encodeURIComponent(address)}`);
    await page.reload();
    const target = page.locator(".item.target");
    await target.waitFor();
    assert.match(await target.textContent(), /aws_ecs_service\.service_36\[4896\]/);
    assert.ok(await target.locator(".attributes").isVisible());
    await until("the change is on the screen", () => target.evaluate((row) => row.getBoundingClientRect().top > 0 && row.getBoundingClientRect().top < innerHeight));
    const focused = () => page.evaluate(() => document.activeElement?.textContent);
    const first = await focused();
    assert.match(first, /service_36\[4896\]/);
    await page.keyboard.press("ArrowDown");
    assert.notEqual(await focused(), first);
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("aria-expanded")), "true");
    await page.getByRole("tab", { name: "Plan text" }).click();
    await page.getByText("Terraform will perform the following actions").waitFor();
    await page.goBack();
    await page.locator(".item").first().waitFor();
});

await check("a hostile plan stays text", async () => {
    const page = await open(run("hostile", "&view=changes"));
    await page.getByRole("button", { name: "Expand all" }).click();
    await until("the changes are shown", async () => (await page.locator("#view").textContent()).includes("100,000 characters"));
    assert.match(await page.title(), /^hostile-plan · /);
    const made = await page.evaluate(() => [...document.querySelectorAll("#view script, #view img, #view h1, #view [onerror], #view a[href^='javascript']")].map(({ outerHTML }) => outerHTML.slice(0, 100)));
    assert.deepEqual(made, ['<h1><bdi>hostile-plan</bdi></h1>']);
    const text = await page.locator("#view").textContent();
    for (const part of ["<script>document.title", "<b>credentials</b> U+202E", "access_levelU+202EU+2066", "payU+200Bpal", "U+001B[31mred", "100,000 characters", '"a": 1,\n  "a": 2', "12345678901234567890"]) assert.ok(text.includes(part), part);
    assert.ok(!/[\u202a-\u202e\u2066-\u2069\u200b\u001b]/.test(text), "a hidden character is left");
});

await check("a hostile log stays text", async () => {
    const page = await open(run("hostile", "&view=log"));
    await page.getByText("the last line").waitFor();
    await page.locator(".log").getByText("Download").waitFor();
    const lines = await texts(page, ".lines .line .content");
    assert.ok(lines.some((line) => line.startsWith("<script>document.title")));
    assert.ok(lines.some((line) => line === "Error: bold red plain green true colour"));
    assert.equal(await page.locator(".line .ansi-red.ansi-bold").textContent(), "Error:");
    assert.ok(lines.some((line) => line === "a link cleared"));
    const cut = lines.filter((line) => line.includes("the line is cut here"));
    assert.deepEqual(cut.map((line) => [line.length < 10_100, /it has 9,990,000 more characters/.test(line)]), [[true, true], [true, true]]);
    assert.ok(!/[\u202a-\u202e\u2066-\u2069\u200b\u001b\u{e0041}]/u.test(lines.join("\n")), "a hidden character is left");
    assert.match(await page.title(), /^hostile-plan · /);
});

await check("a log: search, steps, links to lines", async () => {
    const page = await open(run("fleet", "&view=log#L60000"));
    const target = page.locator(".line.target");
    await target.waitFor();
    assert.match(await target.textContent(), /^60000aws_instance\.web\[59999\]/);
    const elements = await page.evaluate(() => document.querySelectorAll("*").length);
    assert.ok(elements < 8_000, `only what is near the screen has elements: ${elements}`);
    await page.keyboard.press("/");
    await page.keyboard.type("WEB[1234");
    await page.getByText(/^1\d lines$/).waitFor();
    await page.keyboard.press("Enter");
    await until("the match is marked", async () => (await texts(page, ".line.target mark"))[0] === "web[1234");
    await page.keyboard.press("Enter");
    await page.getByText(/^2 of 1\d lines$/).waitFor();
    await page.mouse.wheel(0, -10_000_000);
    const step = page.getByRole("button", { name: /^init/ });
    await page.getByText("Initializing the backend...").waitFor();
    await step.click();
    assert.ok(await page.getByText("Initializing the backend...").isHidden());
    assert.match(await step.textContent(), /12 s/);
});

await check("a log that is too long is shown without its middle", async () => {
    const page = await open(run("huge", "&view=log"));
    await page.locator(".log").getByText("Download").waitFor();
    const note = page.locator(".lines .cut");
    assert.match(await note.textContent(), /^50,000 lines are left out here/);
    await page.evaluate(() => (location.hash = "#L350000"));
    await until("the last line", async () => (await texts(page, ".line.target"))[0] === "350000line 350000");
    for (const [fragment, text] of [["L350001", "There is no line 350,001: the log has 350,000 lines."], ["L170000", "Line 170,000 is among those that are left out here."]]) {
        await page.evaluate((fragment) => (location.hash = fragment), fragment);
        await page.locator(".log > .warning").getByText(text).waitFor();
    }
    await page.evaluate(() => (location.hash = "#L5-L3"));
    await until("the first lines", async () => (await texts(page, ".line.target")).join() === "3line 3,4line 4,5line 5");
    assert.ok(await page.locator(".log > .warning").isHidden());
    await page.goto(`${datastore.url}${run("broken", "&view=log#L7")}`);
    await page.getByText("There is no line 7: the log has 1 line.").waitFor();
});

await check("names may have any characters", async () => {
    const page = await open(`/?${new URLSearchParams({ namespace: "team-a", layer: ODD })}`);
    await page.locator("tbody").getByRole("link", { name: ODD }).click();
    await page.getByRole("tab", { name: "Log" }).click();
    await page.getByText("odd", { exact: true }).waitFor();
    assert.deepEqual(await texts(page, "h1"), [ODD]);
    assert.equal(await page.title(), `${ODD} · ${ODD} · team-a · Plancha`);
    await page.locator("#crumbs").getByRole("link", { name: ODD }).first().click();
    await page.locator("tbody").getByRole("link", { name: ODD }).waitFor();
});

await check("differences, JSON, modules and escape codes", async () => {
    const page = await open("/");
    const failures = await page.evaluate(async () => {
        const { diffLines, indented } = await import("/ui/diff.js");
        const { moduleSteps } = await import("/ui/changes.js");
        const { Ansi } = await import("/ui/ansi.js");
        const failures = [];
        const equal = (name, found, expected) => JSON.stringify(found) === JSON.stringify(expected) || failures.push([name, found, expected]);
        // How long the longest common subsequence of two lists is.
        const common = (a, b) => {
            let row = Array(b.length + 1).fill(0);
            for (const x of a) row = b.reduce((next, y, at) => [...next, x === y ? row[at] + 1 : Math.max(row[at + 1], next[at])], [0]);
            return row.at(-1);
        };
        const some = () => Array.from({ length: Math.random() * 12 }, () => "abc"[Math.floor(Math.random() * 3)]);
        for (let times = 0; times < 2000; times += 1) {
            const [a, b] = [some(), some()];
            const lines = diffLines(a, b);
            const of = (kind) => lines.filter((line) => line.kind !== kind).map(({ text }) => text);
            equal("before", of("+"), a);
            equal("after", of("-"), b);
            equal(`as few as possible: ${a} ${b}`, lines.filter(({ kind }) => kind === " ").length, common(a, b));
        }
        const many = (name) => Array.from({ length: 5000 }, (_, at) => name + at);
        equal("two long texts", diffLines(many("a"), many("b")).length, 10_000);
        for (const text of ["", "a", "{", '{"a":1', '"a"', "1", "[1,]"]) equal(text, indented(text), null);
        equal("empty", indented('{"a": [], "b":{ } }'), '{\n  "a": [],\n  "b": {}\n}');
        equal("kept", indented('["\\u003c \\"{", 1.50, 1e5,{"a":true,"a":null}]'), '[\n  "\\u003c \\"{",\n  1.50,\n  1e5,\n  {\n    "a": true,\n    "a": null\n  }\n]');
        equal("steps", moduleSteps('module.a["x.module.y\\"]"].module.b[0].module.c'), ['module.a["x.module.y\\"]"]', "module.b[0]", "module.c"]);
        const ansi = new Ansi();
        equal("colour", ansi.read("\u001b[1;31mred"), { text: "red", spans: [{ start: 0, end: 3, style: "ansi-red ansi-bold" }] });
        equal("the next line", ansi.read("on\u001b[22moff\u001b[mend").spans, [{ start: 0, end: 2, style: "ansi-red ansi-bold" }, { start: 2, end: 5, style: "ansi-red" }]);
        equal("cut", ansi.read("a\u001b[3").text, "a3");
        equal("background", new Ansi().read("\u001b[1;41mx").spans[0]?.style, "ansi-bold");
        return failures;
    });
    assert.deepEqual(failures, []);
});

await check("steps and files", async () => {
    const page = await open(run("shop", "&view=steps"));
    const plan = page.getByRole("row").filter({ hasText: "3 min 4 s" });
    assert.match(await plan.textContent(), /plan.*1\.2 GiB/);
    await page.keyboard.press("Tab");
    await page.getByRole("tab", { name: "Steps" }).focus();
    await page.keyboard.press("ArrowRight");
    for (const [name, text] of [["plan.json", /"terraform_version":"1\.11\.4"/], ["run.json", /"version":1/], ["run.log", /^terraform 1\.11\.4/], ["pretty.plan", /^Terraform will/]]) {
        const link = page.getByRole("link", { name });
        assert.equal(await link.getAttribute("download"), name);
        assert.match(await link.evaluate(async ({ href }) => (await fetch(href)).text()), text);
    }
});

await check("a report with wrong types is shown as far as it goes", async () => {
    const page = await open(run("wrong", "&view=steps"));
    await page.getByRole("row").filter({ hasText: "0 ms" }).waitFor();
    assert.match(await page.locator(".run-header").textContent(), /^wrong-planOutcomenot finished/);
    await page.goto(`${datastore.url}/?namespace=team-a&layer=wrong`);
    await page.getByText("unknown").first().waitFor();
});

await check("a failed run says what is true on the page", async () => {
    const page = await open(run("broken"));
    await page.locator(".failure").waitFor();
    assert.equal(await page.locator(".failure").textContent(), "terraform plan failedInvalid countNext: read the tool's output in the log");
    assert.deepEqual(await texts(page, ".run-header .badge"), ["failed"]);
});

await check("a lost run: both parts about its plan say the same", async () => {
    const page = await open("/");
    const heard = new Date(Date.now() - 5 * 60_000).toISOString();
    const lost = { attempt: 0, live: "lost", artifacts: [{ name: "run.log", size: 5, modified: heard }] };
    const look = async (attempts) => {
        await page.route("**/api/attempts?*", (route) => route.fulfill({ json: { attempts } }));
        await page.goto(`${datastore.url}${run("many", "&attempt=0&view=changes")}`);
        const text = async () => {
            await page.locator("#panel .notice").waitFor();
            return page.locator("#panel .notice").textContent();
        };
        const changes = await text();
        await page.getByRole("tab", { name: "Plan text" }).click();
        assert.equal(await text(), changes);
        return [changes, (await texts(page, ".run-header .warning")).join()];
    };
    const [notice, warning] = await look([lost]);
    assert.equal(notice, "This run has stored no planThe runner was last heard of 5 minutes ago. What it has stored is here.");
    assert.match(warning, /^The runner was last heard of 5 minutes ago: .* It may return\.$/);
    const [, later] = await look([lost, { attempt: 1, live: "running", artifacts: [] }]);
    assert.match(later, /Attempt 1 was made after it\.$/);
    assert.equal((await look([{ ...lost, live: "running" }]))[0], "The plan is not there yetIt appears here as soon as the run has stored it.");
});

await check("refused, empty and unknown", async () => {
    for (const [path, text] of [
        ["/?namespace=secret", "You do not have access to this"],
        ["/?namespace=secret&layer=vault&run=vault-plan", "You do not have access to this"],
        ["/?namespace=empty", "No layers"],
        ["/?namespace=team-a&layer=none", "No runs"],
        ["/?namespace=team-a&layer=shop&run=none", "There is no such run"],
        ["/?namespace=team-a&layer=shop&run=shop-plan&attempt=7", "The run has no attempt 7"],
        ["/?namespace=team-a&layer=many&run=many-1&view=changes", "This run has no plan"],
        ["/?namespace=a/b&layer=..&run=%00", "The datastore refuses this"],
    ]) {
        const page = await open(path);
        await page.getByText(text).first().waitFor();
        assert.ok(!(await page.locator("body").textContent()).includes("what the vault has"));
    }
});

await check("a real run live, over a restart of the datastore, to its end", async () => {
    const runner = datastore.startRun("live-apply");
    await until("the log begins", async () => {
        const query = new URLSearchParams({ namespace: "team-a", layer: "live", run: "live-apply" });
        const response = await fetch(`${datastore.url}/api/attempts?${query}`, { headers: { authorization: datastore.token } });
        return (await response.json()).attempts?.[0]?.live === "running";
    });
    const page = await open("/?namespace=team-a&layer=live&run=live-apply");
    await page.locator(".log .badge.live").waitFor();
    await page.getByText("(local-exec): tick 3").first().waitFor();
    await page.getByRole("button", { name: "apply", exact: true }).waitFor();
    assert.equal(runner.exitCode, null, "the text is there before the run has ended");
    await page.screenshot({ path: join(shots, "live.png") });
    await datastore.stop();
    await page.getByText("The connection is lost").waitFor();
    await datastore.run();
    const last = async () => Math.max(0, ...(await texts(page, ".line .content")).map((line) => Number(/: tick (\d+)$/.exec(line)?.[1] ?? 0)));
    const before = await last();
    await until("text comes again", async () => (await last()) > before);
    datastore.go();
    assert.equal(await runner.ended, 0, runner.text);
    await page.locator(".log").getByText("Download").waitFor();
    const ticks = (await texts(page, ".line .content")).map((line) => Number(/: tick (\d+)$/.exec(line)?.[1] ?? 0)).filter(Boolean);
    assert.deepEqual(ticks, ticks.map((_, at) => at + 1), "each line is there once, in order");
    await page.getByText("applied", { exact: true }).waitFor();
    await page.getByRole("tab", { name: "Steps" }).click();
    await page.getByRole("row").filter({ hasText: "apply" }).waitFor();
});

await check("a run that has not written anything yet", async () => {
    const key = { namespace: "team-a", layer: "claimed", run: "claimed-plan", attempt: 0 };
    await datastore.send("POST", "attempts", { ...key, claim: "00000000-0000-4000-8000-000000000000" });
    const page = await open(run("claimed"));
    await page.getByText("The log is empty so far").waitFor();
    await datastore.send("POST", "logs", { ...key, offset: 0 }, "the first line\n");
    await page.getByText("the first line").waitFor();
    await page.locator(".run-header").getByText("running").waitFor();
    await datastore.send("POST", "logs", { ...key, offset: 15, complete: true }, "the last line\n");
    await page.locator(".log").getByText("Download").waitFor();
    assert.deepEqual(await texts(page, ".line .content"), ["the first line", "the last line"]);
});

await check("a run that has not started, and the list of runs, are asked for again", async () => {
    const missing = await open(run("later"), { hasClock: true });
    await missing.getByText("There is no such run").waitFor();
    const page = await open("/?namespace=team-a&layer=later", { hasClock: true });
    await page.getByText("No runs", { exact: true }).waitFor();
    await datastore.store("team-a", "later", "later-plan", { log: "it has started\n", report: data.report() });
    await missing.clock.runFor(5_000);
    await missing.getByText("it has started").waitFor();
    const link = page.getByRole("link", { name: "later-plan" });
    await page.clock.runFor(15_000);
    await page.locator("tbody .badge").getByText("changes").waitFor();
    await link.focus();
    await link.evaluate((link) => (link.isTheSame = true));
    await datastore.store("team-a", "later", "later-second", { log: "x\n", report: data.report({ outcome: "no_changes" }) });
    await datastore.put("documents", { namespace: "team-a", layer: "later", name: "status.json" }, JSON.stringify({ status: "ok", ended: new Date().toISOString() }));
    await page.clock.runFor(15_000);
    await page.getByText("Last check").waitFor();
    await page.locator("tbody .badge").getByText("no changes").waitFor();
    assert.deepEqual(await texts(page, "tbody td:first-child"), ["later-second", "later-plan"]);
    assert.ok(await link.evaluate((link) => link.isTheSame && link === document.activeElement), "the row is the same, with the focus");
    let [requests, isAway] = [0, false];
    await page.route("**/api/runs?*", (route) => { requests += 1; return isAway ? route.abort() : route.continue(); });
    const look = (isHidden) => page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, value: isHidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
    await look(true);
    await page.clock.runFor(120_000);
    assert.equal(requests, 0, "nothing is asked for while the page is not visible");
    const answer = page.waitForResponse("**/api/runs?*");
    await look(false);
    await (await answer).finished();
    await page.waitForLoadState("networkidle");
    [requests, isAway] = [0, true];
    for (const [seconds, expected] of [[15, 1], [15, 1], [15, 2], [45, 2], [15, 3]]) {
        await page.clock.runFor(seconds * 1000);
        await until(`${expected} requests`, () => requests >= expected);
        await page.waitForFunction(() => Promise.resolve(true));
        assert.equal(requests, expected, "after errors it waits longer");
    }
    const many = await open("/?namespace=team-a&layer=many", { hasClock: true });
    await many.getByRole("button", { name: "Show more" }).click();
    await until("30 runs", async () => (await many.locator("tbody tr").count()) === 30);
    many.on("request", (request) => assert.ok(!request.url().includes("/api/runs?"), "a list of several pages stays as it is"));
    await many.clock.runFor(60_000);
    assert.equal(await many.locator("tbody tr").count(), 30);
});

/** Every view, as it is looked at by people and by axe. */
const VIEWS = {
    namespaces: ["/", "team-a"],
    layers: ["/?namespace=team-a", "hostile"],
    runs: ["/?namespace=team-a&layer=many", "no changes"],
    plan: [run("shop"), "aws_instance.batch"],
    large: [run("fleet"), "5,000 changes"],
    hostile: [run("hostile", "&view=changes"), "javascript"],
    text: [run("shop", "&view=text"), "Terraform will perform"],
    log: [run("shop", "&view=log#L12"), "web[11]"],
    "hostile-log": [run("hostile", "&view=log"), "the last line"],
    steps: [run("shop", "&view=steps"), "show json"],
    files: [run("shop", "&view=files"), "run.log"],
    refused: ["/?namespace=secret", "You do not have access to this"],
    empty: ["/?namespace=empty", "No layers"],
    "sign-in": ["/sign-in?next=/", "Token"],
};

for (const [name, [path, text]] of Object.entries(VIEWS)) {
    for (const [kind, options] of Object.entries({ light: {}, dark: { colorScheme: "dark" }, phone: { viewport: PHONE }, "phone-dark": { viewport: PHONE, colorScheme: "dark" } })) {
        await check(`${name}, ${kind}`, async () => {
            const page = await open(path, options);
            await page.getByText(text).first().waitFor();
            if (name === "plan" || name === "hostile") await page.getByRole("button", { name: "Expand all" }).click();
            await page.screenshot({ path: join(shots, `${name}-${kind}.png`) });
            const width = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
            assert.ok(width <= 0, `${name} is ${width} pixels too wide`);
            await page.evaluate(axe);
            const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
            const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
            assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`)]), []);
            const others = violations.filter((violation) => !serious.includes(violation)).map(({ id }) => id);
            if (others.length > 0) console.log(`    axe, not serious: ${others.join(", ")}`);
        });
    }
}

await browser.close();
await datastore.stop();
process.exit(0);
