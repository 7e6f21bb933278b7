//! Objects that exist although the tool was to create them, as the errors of a failed step name them.

use crate::tool::diagnosis::class::Class;
use crate::tool::diagnosis::verdict::{Block, Verdict};

/// One such object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) address: String,
    /// The type of the resource.
    pub(crate) kind: Option<String>,
    /// Its import ID, if the error's text names exactly that.
    pub(crate) id: Option<String>,
    /// How its import ID follows from the planned values of the resource, if a rule knows that:
    /// `${metadata.0.namespace}/${metadata.0.name}`.
    pub(crate) planned: Option<String>,
}

/// Those of a failed step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExistingObjects {
    /// Those whose address is known exactly.
    pub(crate) objects: Vec<Existing>,
    /// Whether these are the only errors, but for transient ones.
    pub(crate) is_all: bool,
}

impl ExistingObjects {
    pub(super) fn of(verdict: &Verdict<'_>) -> Self {
        let of_class = |block: &&Block<'_>| block.class == Class::AlreadyExists;
        let found = verdict.blocks.iter().filter(of_class);
        let objects =
            found.clone().filter(|block| block.error.unit.is_none()).filter_map(|block| {
                Some(Existing {
                    address: block.address.clone()?,
                    kind: block.error.resource_type(),
                    id: block.import_id.clone(),
                    planned: block.planned_id.clone(),
                })
            });
        let objects = objects.collect::<Vec<_>>();
        let classes = verdict.blocks.iter().map(|block| block.class);
        let mut others = classes.filter(|class| *class != Class::AlreadyExists);
        let is_all = objects.len() == found.count()
            && others.all(|class| class == Class::Transient)
            && verdict.unlisted.keys().all(|class| *class == Class::Transient);
        Self { objects, is_all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::diagnosis::rules::Rules;

    fn with<T>(errors: &[(&str, &str)], read: impl Fn(&Verdict<'_>) -> T) -> T {
        let error = |(text, address): &(&str, &str)| {
            let (kind, name) = address.rsplit_once('.').unwrap();
            format!(
                "Error: {text}\n\n  with {address},\n  on main.tf line 1, in resource \"{kind}\" \"{name}\":\n   1: x {{\n\n"
            )
        };
        let output = errors.iter().map(error).collect::<String>();
        let rules = Rules::load(None).unwrap();
        read(&Verdict::read(output.as_bytes(), &rules).unwrap())
    }

    /// Errors of the providers hashicorp/aws 5.100 and hashicorp/kubernetes.
    #[test]
    fn objects_are_named_with_what_is_known_of_their_ids() {
        let exists = "creating IAM Role (r): operation error IAM: CreateRole, https response error StatusCode: 409, \
             EntityAlreadyExists: Role with name r already exists.";
        let errors = [
            (exists, "aws_iam_role.a"),
            ("configmaps \"c\" already exists", "kubernetes_config_map.b"),
            (
                "creating EC2 Security Group (g): InvalidGroup.Duplicate: exists",
                "aws_security_group.c",
            ),
            ("creating S3 Bucket (b): BucketAlreadyExists: ", "aws_s3_bucket.d"),
            ("creating thing: connection reset by peer", "aws_vpc.e"),
        ];
        let found = with(&errors, ExistingObjects::of);
        let text = found.objects.iter().map(|object| {
            let Existing { address, id, planned, kind } = object;
            assert!(address.starts_with(kind.as_deref().unwrap()));
            format!("{address} {id:?} {planned:?}")
        });
        assert_eq!(
            text.collect::<Vec<_>>(),
            [
                "aws_iam_role.a Some(\"r\") Some(\"${name}\")",
                "kubernetes_config_map.b None Some(\"${metadata.0.namespace}/${metadata.0.name}\")",
                "aws_security_group.c None None",
                "aws_s3_bucket.d None None",
            ]
        );
        assert!(found.is_all);
        assert!(!with(&[errors[0], ("403 Forbidden", "aws_vpc.e")], ExistingObjects::of).is_all);
        assert!(!with(&[errors[0], ("strange", "aws_vpc.e")], ExistingObjects::of).is_all);
        let none = with(&errors[4..], ExistingObjects::of);
        assert_eq!(none.objects, []);
    }

    #[test]
    fn errors_without_an_answer_are_told_from_requests_that_were_refused_or_not_sent() {
        for (text, unanswered) in [
            ("creating thing: read tcp 10.0.0.1:443: connection reset by peer", true),
            ("creating thing: Post \"https://h/\": EOF", true),
            ("creating thing: net/http: timeout awaiting response headers", true),
            ("creating thing: https response error StatusCode: 503, ServiceUnavailable: x", true),
            ("creating thing: 502 Bad Gateway", true),
            ("creating thing: InternalError: We encountered an internal error", true),
            ("creating thing: context canceled", true),
            ("Plugin did not respond", true),
            ("Root object was present, but now absent", true),
            ("dial tcp 10.0.0.1:443: i/o timeout", false),
            ("dial tcp 10.0.0.1:443: connect: connection refused", false),
            ("net/http: TLS handshake timeout", false),
            ("dial tcp: lookup h: no such host", false),
            ("checking for presence of existing thing: 503 Service Unavailable", false),
            ("creating thing: 429 Too Many Requests", false),
            ("creating thing: ThrottlingException: Rate exceeded", false),
            ("creating thing: 403 Forbidden", false),
            ("creating thing: OperationAborted: A conflicting conditional operation", false),
            ("timeout while waiting for plugin to start", false),
            ("strange", false),
        ] {
            let found = with(&[(text, "aws_vpc.a")], |verdict| verdict.blocks[0].is_unanswered());
            assert_eq!(found, unanswered, "{text}");
        }
    }
}
