use serde_json::{Map, json};

use crate::release::versions::formats::*;

fn versions(format: ListFormat, body: &str) -> Vec<String> {
    let mut versions = parse(format, body.as_bytes()).unwrap().versions;
    versions.sort();
    versions
}

/// A list of versions in the documented form of a vendor or a mirror.
fn list(format: ListFormat, versions: &[&str]) -> String {
    let file = |version: &str, end: &str| format!("terraform_{version}_{end}");
    let value = match format {
        ListFormat::Index => {
            let release = |version: &&str| {
                let build = json!({"arch": "amd64", "filename": file(version, "linux_amd64.zip"),
                    "name": "terraform", "os": "linux", "version": version});
                let release = json!({"builds": [build], "name": "terraform", "version": version,
                    "shasums": file(version, "SHA256SUMS")});
                (version.to_string(), release)
            };
            json!({"name": "terraform", "versions": versions.iter().map(release).collect::<Map<_, _>>()})
        }
        ListFormat::Api => {
            let release = |id: &&str| json!({"id": id, "files": [file(id, "SHA256SUMS")]});
            json!({"versions": versions.iter().map(release).collect::<Vec<_>>()})
        }
        ListFormat::GitHub => {
            let release = |version: &&str| {
                json!({"tag_name": format!("v{version}"), "draft": false, "prerelease": false,
                    "assets": [{"name": file(version, "SHA256SUMS"), "size": 1}]})
            };
            json!(versions.iter().map(release).collect::<Vec<_>>())
        }
        ListFormat::Html | ListFormat::HtmlText => {
            let line = |version: &&str| {
                format!("<a href=\"{version}/\">{version}/</a>   18-Jan-2024 12:37    -\n")
            };
            let lines = versions.iter().map(line).collect::<String>();
            return format!(
                "<!DOCTYPE html>\n<html><head><title>Index of terraform</title></head><body>\n\
                 <pre><a href=\"../\">../</a>\n{lines}<a href=\"index.json\">index.json</a>  845 KB\n\
                 </pre></body></html>"
            );
        }
    };
    value.to_string()
}

#[test]
fn lists_of_vendors_and_mirrors_are_read() {
    const VERSIONS: [&str; 4] = ["1.7.0", "1.7.0-alpha20231025", "1.7.0-rc2", "1.9.8"];
    for format in [ListFormat::Index, ListFormat::Api, ListFormat::GitHub, ListFormat::Html] {
        assert_eq!(versions(format, &list(format, &VERSIONS)), VERSIONS, "{format:?}");
    }
    assert_eq!(versions(ListFormat::HtmlText, &list(ListFormat::HtmlText, &VERSIONS)), VERSIONS);
}

#[test]
#[ignore = "needs ../shared/data"]
fn full_lists_of_vendors_are_read() {
    let fixtures = support::shared_data("fixtures").unwrap();
    for (format, name, count, one) in [
        (ListFormat::Index, "hashicorp_index_generated.json", 437, "1.9.8"),
        (ListFormat::Index, "hashicorp_index_4versions.json", 4, "1.7.0"),
        (ListFormat::Api, "opentofu_api_generated.json", 101, "1.12.0-beta1"),
        (ListFormat::GitHub, "github_opentofu_releases.json", 1, "1.6.0"),
        (ListFormat::Html, "artifactory_listing.html", 4, "1.7.0-rc2"),
    ] {
        let text = std::fs::read_to_string(fixtures.join(name)).unwrap();
        let versions = versions(format, &text);
        assert!(versions.len() >= count, "{name}: {}", versions.len());
        assert!(versions.iter().any(|version| version == one), "{name}: {versions:?}");
    }
}

#[test]
fn links_of_every_kind_of_listing_are_read() {
    for (html, expected) in [
        ("<a href=\"1.7.0/\">", &["1.7.0"][..]),
        ("<a class='x' href='/terraform/1.7.0/'>terraform_1.7.0</a>", &["1.7.0"]),
        ("<a href=\"https://nexus/repository/x/v1.7.0?a=/2.0.0#/3.0.0\">", &["1.7.0"]),
        ("<a href=\"v1.6.0/\"><a href=\"v1.6.0/\"><a href=\"../\">", &["1.6.0"]),
        ("<a href=\"1.0.0/\"><a href=\"index.json\"><a href=1.1.0>", &["1.0.0", "1.1.0"]),
        ("<A HREF=\"1.0.0/\"><a\nhref = '1.1.0/' ><a href=1.2.0/>", &["1.0.0", "1.1.0", "1.2.0"]),
        ("<a href=\"/list/2\"><a href=\"/2024/\"><a href=\"1.5/\"><a href=\"1.5.0/\">", &["1.5.0"]),
        ("<a href=\"http://10.0.0.5/\"><a href=\"1.5.0/\"><a href=\"1.5.0.1/\">", &["1.5.0"]),
        ("<a title=\"x\" data-href=\"1.0.0\" href=\"1.1.0-rc1/\">", &["1.1.0-rc1"]),
        ("<a href=\"alpha-2025031901/\">", &["alpha-2025031901"]),
    ] {
        assert_eq!(versions(ListFormat::Html, html), expected, "{html}");
    }
    let text = "<a href='x'>1.0.0/</A ><a href='y'>2024</a>";
    assert_eq!(versions(ListFormat::HtmlText, text), ["1.0.0"]);
    for nothing in ["", "<html>", "href=", "href=\"", "<a href=\"x\">"] {
        parse(ListFormat::Html, nothing.as_bytes()).unwrap_err();
    }
}

#[test]
fn what_is_not_a_list_is_an_error() {
    for (format, body) in [
        (ListFormat::Index, "{}"),
        (ListFormat::Index, "[]"),
        (ListFormat::Api, "{\"versions\": {}}"),
        (ListFormat::Api, "{\"versions\": [{}]}"),
        (ListFormat::GitHub, "{\"message\": \"Not Found\"}"),
        (ListFormat::GitHub, "[{}]"),
    ] {
        parse(format, body.as_bytes()).unwrap_err();
    }
}

#[test]
fn the_number_of_the_last_page_is_read() {
    assert_eq!(page_number("https://api.github.com/x?per_page=100&page=10"), Some(10));
    for nonsense in ["", "https://x/", "https://x/?page=a", "https://x/?pages=1"] {
        assert_eq!(page_number(nonsense), None);
    }
    assert_eq!(page_url("http://x/y", 2), "http://x/y?per_page=100&page=2");
    assert_eq!(page_url("http://x/y?z=1", 2), "http://x/y?z=1&per_page=100&page=2");
}
