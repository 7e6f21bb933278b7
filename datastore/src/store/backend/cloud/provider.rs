//! The clouds, their URL schemes, and the variables that their own programs read.

pub(in crate::store) const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

pub(in crate::store) const BASE_URL: &str = "GOOGLE_BASE_URL";

/// A cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Amazon S3 and compatible servers.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

/// What is done with objects, as far as rights distinguish it.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Access {
    List,
    Read,
    Write,
    /// Begin a multipart upload, store a part of it, or complete it.
    Upload,
    Delete,
    /// Remove the parts of an upload that was not completed.
    Abort,
}

const S3: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_S3_EXPRESS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_IMDSV1_FALLBACK",
    "AWS_SKIP_SIGNATURE",
    "AWS_UNSIGNED_PAYLOAD",
    "AWS_CHECKSUM_ALGORITHM",
    "AWS_REQUEST_PAYER",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_SSE_BUCKET_KEY_ENABLED",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_DISABLE_BULK_DELETE",
    "AWS_CONNECT_TIMEOUT",
    "AWS_READ_TIMEOUT",
    "AWS_PROXY_URL",
    "AWS_PROXY_CA_CERTIFICATE",
    "AWS_PROXY_EXCLUDES",
    "AWS_ALLOW_INVALID_CERTIFICATES",
];

const GCS: &[&str] = &[
    EMULATOR,
    "SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BEARER_TOKEN",
    BASE_URL,
    "GOOGLE_SKIP_SIGNATURE",
    "GOOGLE_ALLOW_HTTP",
    "GOOGLE_CONNECT_TIMEOUT",
    "GOOGLE_READ_TIMEOUT",
    "GOOGLE_PROXY_URL",
    "GOOGLE_PROXY_CA_CERTIFICATE",
    "GOOGLE_PROXY_EXCLUDES",
];

const AZURE: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURITE_BLOB_STORAGE_URL",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_USE_AZURE_CLI",
    "AZURE_CREDENTIAL_TYPE",
    "AZURE_MSI_ENDPOINT",
    "AZURE_IDENTITY_ENDPOINT",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "AZURE_OBJECT_ID",
    "AZURE_MSI_RESOURCE_ID",
    "AZURE_SKIP_SIGNATURE",
    "AZURE_ALLOW_HTTP",
    "AZURE_CONNECT_TIMEOUT",
    "AZURE_READ_TIMEOUT",
    "AZURE_PROXY_URL",
    "AZURE_PROXY_CA_CERTIFICATE",
    "AZURE_PROXY_EXCLUDES",
];

impl Provider {
    /// The provider of a URL scheme.
    pub fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" => Some(Self::S3),
            "gs" => Some(Self::Gcs),
            "az" => Some(Self::Azure),
            _ => None,
        }
    }

    pub(in crate::store) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }

    /// The variables that configure access.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::S3 => S3,
            Self::Gcs => GCS,
            Self::Azure => AZURE,
        }
    }

    /// The variables with the URL of the storage; the first that is set is used.
    pub(in crate::store) fn endpoints(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
            Self::Gcs => &[BASE_URL],
            Self::Azure => &["AZURE_STORAGE_ENDPOINT"],
        }
    }

    /// The variable that allows plain HTTP.
    pub(in crate::store) fn allow_http(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ALLOW_HTTP",
            Self::Gcs => "GOOGLE_ALLOW_HTTP",
            Self::Azure => "AZURE_ALLOW_HTTP",
        }
    }

    /// The right that an access needs, as the cloud names it.
    pub(in crate::store) fn right(self, access: Access) -> &'static str {
        match (self, access) {
            (Self::S3, Access::List) => "s3:ListBucket",
            (Self::S3, Access::Read) => "s3:GetObject",
            (Self::S3, Access::Write | Access::Upload) => "s3:PutObject",
            (Self::S3, Access::Delete) => "s3:DeleteObject",
            (Self::S3, Access::Abort) => "s3:AbortMultipartUpload",
            (Self::Gcs, Access::List) => "storage.objects.list",
            (Self::Gcs, Access::Read) => "storage.objects.get",
            (Self::Gcs, Access::Write) => {
                "storage.objects.create, and storage.objects.delete to replace an object"
            }
            (Self::Gcs, Access::Upload) => {
                "storage.objects.create and storage.multipartUploads.create, and storage.objects.delete to replace an object"
            }
            (Self::Gcs, Access::Delete) => "storage.objects.delete",
            (Self::Gcs, Access::Abort) => "storage.multipartUploads.abort",
            (Self::Azure, Access::List) => "to list (role Storage Blob Data Contributor)",
            (Self::Azure, Access::Read) => "to read (role Storage Blob Data Contributor)",
            (Self::Azure, Access::Write | Access::Upload) => {
                "to write (role Storage Blob Data Contributor)"
            }
            (Self::Azure, Access::Delete | Access::Abort) => {
                "to delete (role Storage Blob Data Contributor)"
            }
        }
    }

    /// How to provide credentials, for users who have none.
    pub(in crate::store) fn credentials_hint(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role is given \
                 (IRSA, EKS Pod Identity, ECS, EC2); AWS_REGION and AWS_ENDPOINT_URL_S3 say where \
                 the bucket is. Profiles of ~/.aws are not read"
            }
            Self::Gcs => {
                "set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`, \
                 or run where a service account is given (GKE Workload Identity, GCE)"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or \
                 AZURE_STORAGE_SAS_TOKEN, or run where an identity is given (workload identity, \
                 managed identity)"
            }
        }
    }
}
