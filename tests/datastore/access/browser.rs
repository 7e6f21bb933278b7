//! A browser, as far as sessions need one: it keeps cookies and follows no redirect by itself.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use reqwest::header::SET_COOKIE;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use support::TestDatastore;
use url::Url;

use crate::http::{Answer, send};

static CLIENT: LazyLock<Client> = LazyLock::new(|| {
    Client::builder().pool_max_idle_per_host(0).redirect(Policy::none()).build().unwrap()
});

/// A browser with the cookies of one datastore.
#[derive(Clone)]
pub(crate) struct Browser {
    url: Url,
    pub(crate) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn of(datastore: &TestDatastore) -> Self {
        Self { url: datastore.url.clone(), cookies: BTreeMap::new() }
    }

    /// A request to the datastore.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = CLIENT.request(method, self.url.join(path).unwrap());
        let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        if cookies.is_empty() { request } else { request.header("cookie", cookies) }
    }

    pub(crate) async fn send(&mut self, request: RequestBuilder) -> Answer {
        let answer = send(request).await;
        for line in answer.headers.get_all(SET_COOKIE) {
            let line = line.to_str().unwrap();
            assert!(line.contains("; HttpOnly; SameSite=Lax"), "{line}");
            let (pair, _) = line.split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if line.contains("Max-Age=0;") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let request = self.request(Method::GET, path);
        self.send(request).await
    }

    /// The status of a GET of an address below `/api`.
    pub(crate) async fn status(&mut self, rest: &str) -> u16 {
        self.get(&format!("/api/{rest}")).await.status
    }

    /// Sends a form of a page of the datastore.
    pub(crate) async fn form(&mut self, path: &str, form: &str) -> Answer {
        let origin = self.url.origin().ascii_serialization();
        let request = self.request(Method::POST, path).header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.send(request.body(form.to_owned())).await
    }

    /// Starts to sign in at an issuer. Returns where that sends the browser back to.
    pub(crate) async fn begin(&mut self, issuer: &str) -> String {
        let answer = self.get(&format!("/sign-in/oidc/{issuer}?next=/api/runs%3Fx")).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        let at_issuer = send(CLIENT.get(answer.header("location").unwrap())).await;
        assert_eq!(at_issuer.status, 303, "{}", at_issuer.text());
        at_issuer.header("location").unwrap().to_owned()
    }

    /// Signs in at an issuer, and returns the last answer.
    pub(crate) async fn sign_in(&mut self, issuer: &str) -> Answer {
        let back = self.begin(issuer).await;
        self.get(&back).await
    }
}
