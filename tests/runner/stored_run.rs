//! Helper: the files of a run in the datastore, as a client reads them.

use support::TestDatastore;
use url::Url;

/// The files of one run.
pub(crate) struct StoredRun {
    base: Url,
    query: String,
}

impl StoredRun {
    pub(crate) fn new(datastore: &TestDatastore, namespace: &str, layer: &str, run: &str) -> Self {
        let query = format!("namespace={namespace}&layer={layer}&run={run}");
        Self { base: datastore.url.clone(), query }
    }

    pub(crate) async fn plan(&self, format: &str, attempt: u32) -> Vec<u8> {
        self.get("plans", &format!("attempt={attempt}&format={format}")).await.unwrap()
    }

    pub(crate) async fn artifact(&self, name: &str, attempt: u32) -> Vec<u8> {
        self.get("artifacts", &format!("attempt={attempt}&name={name}")).await.unwrap()
    }

    pub(crate) async fn log(&self, attempt: u32) -> String {
        let json = self.get("logs", &format!("attempt={attempt}")).await.unwrap();
        let lines = crate::json(&json)["results"].as_array().unwrap().clone();
        lines.iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    }

    /// The names of an attempt's files.
    pub(crate) async fn names(&self, attempt: usize) -> Vec<String> {
        let attempts = crate::json(&self.get("attempts", "").await.unwrap());
        let files =
            attempts["attempts"][attempt]["artifacts"].as_array().cloned().unwrap_or_default();
        files.iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn put_plan_bin(&self, attempt: u32, bytes: &'static [u8]) {
        self.put_plan("bin", attempt, bytes.to_vec()).await;
    }

    /// Stores a format of the plan.
    pub(crate) async fn put_plan(&self, format: &str, attempt: u32, bytes: Vec<u8>) {
        self.put("plans", &format!("attempt={attempt}&format={format}"), bytes).await;
    }

    pub(crate) async fn put_log(&self, attempt: u32, bytes: Vec<u8>) {
        self.put("logs", &format!("attempt={attempt}"), bytes).await;
    }

    /// Stores the plan of attempt 0 as the run `to`, as an earlier release would have: without a binding, and with a
    /// `run.json` that was changed.
    pub(crate) async fn copy_as_of_an_earlier_release(
        &self,
        to: &Self,
        change: impl FnOnce(&mut serde_json::Value),
    ) {
        let mut report = crate::json(&self.artifact("run.json", 0).await);
        report.as_object_mut().unwrap().shift_remove("bound").unwrap();
        change(&mut report);
        to.put("plans", "attempt=0&format=bin", self.plan("bin", 0).await).await;
        to.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    }

    /// Replaces a file, or stores it.
    pub(crate) async fn put_artifact(&self, name: &str, attempt: u32, bytes: Vec<u8>) {
        self.put("artifacts", &format!("attempt={attempt}&name={name}"), bytes).await;
    }

    async fn put(&self, route: &str, query: &str, bytes: Vec<u8>) {
        let url = self.url(route, query);
        let put = reqwest::Client::new().put(url).body(bytes).send().await.unwrap();
        assert_eq!(put.status(), 200);
    }

    pub(crate) async fn get(&self, route: &str, query: &str) -> Option<Vec<u8>> {
        let response = reqwest::get(self.url(route, query)).await.unwrap();
        match response.status().as_u16() {
            200 => Some(response.bytes().await.unwrap().to_vec()),
            404 => None,
            status => panic!("{route}?{query}: {status}"),
        }
    }

    fn url(&self, route: &str, query: &str) -> Url {
        self.base.join(&format!("/api/{route}?{}&{query}", self.query)).unwrap()
    }
}
