//! Documents of layers, the statuses among them, and the namespaces of layers. Datastores of Burrito and older ones of Plancha
//! have none.

use reqwest::{Method, Response};

use super::call::Call;
use super::error::ClientError;
use super::http::{Client, Condition};
use super::silence::Progress;
use super::transfer::Upload;
use crate::document::{DocumentKey, Statuses};
use crate::layers::Namespaces;
use crate::name::Name;

/// The maximum size of a document, in bytes.
const LIMIT: usize = 16 << 20;

impl Client {
    /// Stores a document of a layer, in place of an earlier one. [`ClientError::Unsupported`]: this datastore has none.
    pub async fn put_document(
        &self,
        key: &DocumentKey,
        upload: &Upload,
    ) -> Result<(), ClientError> {
        let (call, progress) = (document_call(Method::PUT, key), Progress::default());
        self.retrying(async || {
            let stored = self.try_put(&call, upload, Condition::Replace, &progress).await;
            self.or_unsupported(stored).await
        })
        .await
    }

    /// Reads a document of a layer. `None`: the datastore itself says that there is none; [`ClientError::Unsupported`]: it has
    /// no documents.
    pub async fn get_document(&self, key: &DocumentKey) -> Result<Option<Vec<u8>>, ClientError> {
        let call = document_call(Method::GET, key);
        let progress = Progress::default();
        self.retrying(async || {
            let progress = progress.another_try();
            let response = self.send(&call, self.request(&call)?, &progress).await;
            match self.or_unsupported(response).await {
                Ok(response) => self.document(&call, response, progress).await.map(Some),
                Err(error) if error.is_not_found(&call) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn document(
        &self,
        call: &Call,
        response: Response,
        progress: Progress,
    ) -> Result<Vec<u8>, ClientError> {
        let download = self.download(self.name(call), response, progress)?;
        // Every document has a digest; the page of a proxy has none.
        if download.expected().is_none() {
            let reason = "it has no digest".to_owned();
            return Err(ClientError::Answer { call: self.name(call), reason });
        }
        Ok(download.bytes(LIMIT).await?.into())
    }

    /// Deletes a document of a layer. One that does not exist is no error.
    pub async fn delete_document(&self, key: &DocumentKey) -> Result<(), ClientError> {
        let call = document_call(Method::DELETE, key);
        let progress = Progress::default();
        self.retrying(async || {
            let progress = progress.another_try();
            let response = self.send(&call, self.request(&call)?, &progress).await;
            let response = self.or_unsupported(response).await?;
            self.check_empty(&call, response, &progress).await
        })
        .await
    }

    /// One page of the namespaces in which the caller may list runs.
    pub async fn namespaces(&self, after: Option<&str>) -> Result<Namespaces, ClientError> {
        let query = after.map(|after| ("after", after.to_owned())).into_iter().collect();
        let call = Call { method: Method::GET, path: "/api/namespaces".into(), query };
        self.json(&call).await
    }

    /// One page of the layers of a namespace that have a status.
    pub async fn statuses(
        &self,
        namespace: &Name,
        limit: u16,
        cursor: Option<&str>,
    ) -> Result<Statuses, ClientError> {
        let mut query = vec![("namespace", namespace.to_string()), ("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        let call = Call { method: Method::GET, path: "/api/statuses".into(), query };
        self.json(&call).await
    }
}

fn document_call(method: Method, key: &DocumentKey) -> Call {
    let DocumentKey { namespace, layer, name } = key;
    let query = vec![
        ("namespace", namespace.to_string()),
        ("layer", layer.to_string()),
        ("name", name.to_string()),
    ];
    Call { method, path: "/api/documents".into(), query }
}
