// The datastore and the runner of the test, and what is stored for it.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import * as data from "./data.mjs";

export const work = mkdtempSync(join(tmpdir(), "plancha-ui-"));
/** A name that means something else in addresses and in HTML. */
export const ODD = "a&b=c#d?<i>é%2f 🌯";
const started = new Set();
const environment = { PATH: process.env.PATH, HOME: work, XDG_CACHE_HOME: join(work, "cache"), CHECKPOINT_DISABLE: "1", TF_CLI_CONFIG_FILE: join(work, "terraformrc") };

process.on("exit", () => {
    for (const child of started) child.kill("SIGKILL");
    rmSync(work, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

function start(program, args, options) {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"], ...options });
    started.add(child);
    child.text = "";
    child.stderr.on("data", (text) => (child.text += text));
    child.ended = new Promise((resolve) => child.on("exit", (code) => { started.delete(child); resolve(code); }));
    return child;
}

export async function until(what, condition) {
    for (let at = 0; at < 600; at += 1) {
        const found = await condition();
        if (found) return found;
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`not within a minute: ${what}`);
}

function freePort() {
    return new Promise((resolve) => {
        const server = createServer().listen(0, "127.0.0.1", () => {
            const { port } = server.address();
            server.close(() => resolve(port));
        });
    });
}

/** A datastore with two callers: one with all permissions, and one who sees two namespaces. */
export class Datastore {
    static async start(bin) {
        const datastore = new Datastore();
        datastore.bin = bin;
        datastore.port = await freePort();
        datastore.url = `http://127.0.0.1:${datastore.port}`;
        const token = (id, namespaces) => execFileSync(join(bin, "datastore"), ["token", id, "--namespace", namespaces, "--rules", join(work, "rules.yaml")], { env: environment, encoding: "utf8" }).trim().split("\n").at(-1).trim();
        datastore.token = token("robot", "*");
        datastore.visitor = token("visitor", "team-a,empty");
        await datastore.run();
        return datastore;
    }

    async run() {
        const flags = ["serve", "--listen", `127.0.0.1:${this.port}`, "--storage", `file://${work}/store`, "--auth", `tokens=${work}/rules.yaml`];
        this.child = start(join(this.bin, "datastore"), flags, { env: environment });
        await until("the datastore is ready", () => fetch(`${this.url}/readyz`).then(({ ok }) => ok, () => false));
    }

    async stop() {
        this.child.kill("SIGKILL");
        await this.child.ended;
    }

    async send(method, route, query, body) {
        const response = await fetch(`${this.url}/api/${route}?${new URLSearchParams(query)}`, { method, body, headers: { authorization: this.token } });
        if (!response.ok) throw new Error(`${method} ${route}: ${response.status} ${await response.text()}`);
    }

    put(route, query, body) {
        return this.send("PUT", route, query, body);
    }

    async store(namespace, layer, run, { plan, log, report }) {
        const key = { namespace, layer, run, attempt: 0 };
        if (plan) {
            await this.put("plans", { ...key, format: "pretty" }, data.prettyPlan(plan));
            await this.put("plans", { ...key, format: "json" }, data.json(plan));
        }
        if (log) await this.put("logs", key, log);
        if (report) await this.put("artifacts", { ...key, name: "run.json" }, JSON.stringify(report));
    }

    /** Everything that the test looks at, but for the run that works meanwhile. */
    async seed() {
        await this.store("team-a", "shop", "shop-plan", { plan: data.variedPlan(), log: data.longLog(400), report: data.report() });
        await this.store("team-a", "fleet", "fleet-plan", { plan: data.largePlan(), log: data.longLog(120_000), report: data.report({ plan: { counts: { create: 2144, update: 1428, delete: 1428 } } }) });
        const failure = { outcome: "failed", exit: 5, class: "auth", message: "<b>credentials</b> \u202eexpired", next: "<script>sign in again</script>", errors: [{ summary: "<i>no</i> credentials", detail: "two\nlines", file: "main.tf", line: 3 }] };
        await this.store("team-a", "hostile", "hostile-plan", { plan: data.hostilePlan(), log: data.hostileLog(), report: data.report(failure) });
        const unknown = { outcome: "failed", exit: 1, class: "unknown", message: "terraform plan failed", next: "read the tool's output above, and in the stored log", errors: [{ summary: "Invalid count" }] };
        await this.store("team-a", "broken", "broken-plan", { log: "Error: Invalid count\n", report: data.report(unknown) });
        for (let at = 0; at < 30; at += 1) {
            const outcome = ["changes", "no_changes", "failed"][at % 3];
            await this.store("team-a", "many", `many-${at}`, { log: "done\n", report: data.report({ outcome, plan: { counts: { create: at % 3, update: 0, delete: 0 } } }) });
        }
        const wrong = { version: "x", action: 1, outcome: {}, class: [], message: ["m"], next: 2, revision: {}, tool: "t", plan: { counts: { create: "x" }, run: 1 }, started: {}, steps: [null, 1, { name: {}, seconds: "y" }], errors: { length: 3 } };
        await this.store("team-a", "wrong", "wrong-plan", { log: "x\n", report: wrong });
        await this.store("team-a", ODD, ODD, { log: "odd\n", plan: data.variedPlan(), report: data.report() });
        await this.store("team-a", "huge", "huge-plan", { log: Array.from({ length: 350_000 }, (_, at) => `line ${at + 1}\n`).join("") });
        await this.store("secret", "vault", "vault-plan", { log: "what the vault has\n" });
        const status = { version: 1, status: "destructively_changed", result: "refused", action: "check", ended: new Date().toISOString(), message: "the policy refuses to delete aws_s3_bucket.logs", failed_in_a_row: 0 };
        await this.put("documents", { namespace: "team-a", layer: "shop", name: "status.json" }, JSON.stringify(status));
    }

    /** A real run, which writes lines for some seconds until the file `go` is there. */
    startRun(name) {
        const module = join(work, "live");
        mkdirSync(module, { recursive: true });
        writeFileSync(join(work, "terraformrc"), "disable_checkpoint = true\n");
        const command = "n=0; while [ ! -e ../go ] && [ $n -lt 600 ]; do n=$((n+1)); echo tick $n; sleep 0.1; done; echo ticks ended";
        writeFileSync(join(module, "main.tf"), `resource "terraform_data" "slow" {\n  provisioner "local-exec" {\n    command = ${JSON.stringify(command)}\n  }\n}\n`);
        const flags = ["--datastore", this.url, "--namespace", "team-a", "--name", "live", "--run", name, "--tool", "terraform", "--offline", "--work-dir", join(work, "live-work"), "--no-plan"];
        this.go = () => writeFileSync(join(work, "go"), "");
        return start(join(this.bin, "runner"), ["apply", module, ...flags], { env: { ...environment, PLANCHA_TOKEN: this.token } });
    }
}
