//! `/` and `/ui/...`: the page for people.

use datastore::config::Config;
use datastore::store::Storage;
use datastore::{Auth, Callers};
use reqwest::Method;
use support::TestDatastore;

use crate::api::health::outside;
use crate::http::{CLIENT, get, send};

/// What the attributes `src` and `href` of an HTML document lead to.
fn links(html: &str) -> Vec<&str> {
    let starts = ["src=\"", "href=\""].into_iter().flat_map(|start| html.split(start).skip(1));
    starts.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn the_page_has_no_inline_script_and_a_policy_that_allows_none() {
    let datastore = TestDatastore::memory().await;
    let page = outside(&datastore, "").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let headers = [
        "content-security-policy",
        "x-content-type-options",
        "referrer-policy",
        "cross-origin-resource-policy",
        "cache-control",
    ];
    let shown = headers.map(|name| format!("{name}: {}\n", page.header(name).unwrap())).concat();
    insta::assert_snapshot!(shown, @"
    content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'
    x-content-type-options: nosniff
    referrer-policy: same-origin
    cross-origin-resource-policy: same-origin
    cache-control: no-cache
    ");
    let html = page.text();
    for script in html.split("<script").skip(1) {
        let (attributes, rest) = script.split_once('>').unwrap();
        assert!(attributes.contains("src=\"/ui/") && rest.starts_with("</script>"), "{script}");
    }
    for inline in ["<style", " style=", " onclick=", " onload=", " onerror=", "javascript:"] {
        assert!(!html.contains(inline), "{inline} in {html}");
    }
}

#[tokio::test]
async fn all_files_of_the_page_are_served_by_this_host_with_their_types() {
    let datastore = TestDatastore::memory().await;
    let html = outside(&datastore, "").await.text();
    let files = links(&html).into_iter().filter(|link| !matches!(*link, "/" | "#main"));
    let files = files.collect::<Vec<_>>();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let name = file.strip_prefix("/ui/").unwrap();
        let answer = outside(&datastore, &format!("ui/{name}")).await;
        let expected = match name.rsplit_once('.').unwrap().1 {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(expected)), "{file}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let text = answer.text();
        for host in text.split("://").skip(1) {
            assert!(
                host.starts_with("www.w3.org/2000/svg"),
                "{file} names another host: {host:.40}"
            );
        }
        // These would make HTML, or code, of text.
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            assert!(!text.contains(sink), "{file} uses {sink}");
        }
    }
}

#[tokio::test]
async fn an_unchanged_file_is_not_sent_again() {
    let datastore = TestDatastore::memory().await;
    for path in ["", "ui/app.js"] {
        let tag = outside(&datastore, path).await.header("etag").unwrap().to_owned();
        let url = datastore.url.join(path).unwrap();
        let again = send(CLIENT.get(url.clone()).header("if-none-match", &tag)).await;
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        assert_eq!(again.header("etag"), Some(tag.as_str()));
        let other = send(CLIENT.get(url.clone()).header("if-none-match", "\"other\"")).await;
        assert_eq!(other.status, 200);
        let head = send(CLIENT.request(Method::HEAD, url)).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("etag"), Some(tag.as_str()));
    }
}

#[tokio::test]
async fn the_page_needs_no_token_but_its_data_does() {
    let callers = Callers { tokens: true, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    assert_eq!(outside(&datastore, "").await.status, 200);
    assert_eq!(outside(&datastore, "ui/app.js").await.status, 200);
    assert_eq!(get(&datastore, "runs?namespace=a&layer=b").await.status, 401);
}

#[tokio::test]
async fn without_the_page_its_paths_are_unknown() {
    let config = Config { ui: false, ..Config::of(Storage::Memory) };
    let without = TestDatastore::of(config).await;
    let with = TestDatastore::memory().await;
    for (datastore, path) in [
        (&without, ""),
        (&without, "ui/app.js"),
        (&with, "ui"),
        (&with, "ui/"),
        (&with, "ui/no.js"),
        (&with, "ui/..%2fpage.html"),
        (&with, "index.html"),
    ] {
        let answer = outside(datastore, path).await;
        assert_eq!(answer.refusal(), r#"404 application/json {"message":"Not Found"}"#, "{path}");
    }
    let post = send(CLIENT.post(with.url.clone())).await;
    assert_eq!(post.status, 404);
}
