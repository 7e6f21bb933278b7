use std::path::Path;

use crate::release::versions::formats::*;

fn versions(format: ListFormat, body: &str) -> Vec<String> {
    let mut versions = parse(format, body.as_bytes()).unwrap().versions;
    versions.sort();
    versions
}

/// A file of the gathered facts, where they are at hand.
fn fixture(name: &str) -> Option<String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/fixtures");
    std::fs::read_to_string(fixtures.join(name)).ok()
}

#[test]
fn what_the_makers_answer_is_read() {
    for (format, name, count, one) in [
        (ListFormat::Index, "hashicorp_index_generated.json", 437, "1.9.8"),
        (ListFormat::Index, "hashicorp_index_4versions.json", 4, "1.7.0"),
        (ListFormat::Api, "opentofu_api_generated.json", 101, "1.12.0-beta1"),
        (ListFormat::GitHub, "github_opentofu_releases.json", 1, "1.6.0"),
        (ListFormat::Html, "artifactory_listing.html", 4, "1.7.0-rc2"),
    ] {
        let Some(text) = fixture(name) else { continue };
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
        ("<a href=\"1.0.0/\"><a href=\"index.json\"><a href=1.1.0>", &["1.0.0"]),
        ("<a href=\"alpha-2025031901/\">", &["alpha-2025031901"]),
    ] {
        assert_eq!(versions(ListFormat::Html, html), expected, "{html}");
    }
    for nothing in ["", "<html>", "href=", "href=\"", "<a href=\"x\">"] {
        parse(ListFormat::Html, nothing.as_bytes()).unwrap_err();
    }
}

#[test]
fn what_is_no_list_is_told() {
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
