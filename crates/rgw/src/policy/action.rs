//! Actions that policies name, and what a list of grants has to give for each.

use crate::Permissions;

macro_rules! actions {
    ($($name:ident = $grant:ident,)+) => {
        /// What a request does. Source: actpairs in src/rgw/rgw_iam_policy.cc, op_to_perm in its header.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Action {
            $($name,)+
        }

        impl Action {
            pub(super) const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// As policies have it, behind `s3:`.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What a list of grants has to give where no policy decides; nothing for what no list gives.
            pub fn grant(self) -> Option<Permissions> {
                match self {
                    $(Self::$name => actions!(@grant $grant),)+
                }
            }
        }
    };
    (@grant Nothing) => { None };
    (@grant Read) => { Some(Permissions::READ) };
    (@grant Write) => { Some(Permissions::WRITE) };
    (@grant ReadAcl) => { Some(Permissions::READ_ACL) };
    (@grant WriteAcl) => { Some(Permissions::WRITE_ACL) };
}

actions! {
    AbortMultipartUpload = Write,
    CreateBucket = Write,
    DeleteBucketPolicy = WriteAcl,
    DeleteBucket = Write,
    DeleteBucketWebsite = WriteAcl,
    DeleteObject = Write,
    DeleteObjectVersion = Write,
    DeleteObjectTagging = Write,
    DeleteObjectVersionTagging = Write,
    DeleteBucketPublicAccessBlock = Nothing,
    DeletePublicAccessBlock = Nothing,
    DeleteReplicationConfiguration = WriteAcl,
    GetAccelerateConfiguration = ReadAcl,
    GetBucketAcl = ReadAcl,
    GetBucketCORS = ReadAcl,
    GetBucketLocation = ReadAcl,
    GetBucketLogging = ReadAcl,
    GetBucketNotification = ReadAcl,
    GetBucketPolicy = ReadAcl,
    GetBucketPolicyStatus = ReadAcl,
    GetBucketPublicAccessBlock = ReadAcl,
    GetBucketRequestPayment = ReadAcl,
    GetBucketTagging = ReadAcl,
    GetBucketVersioning = ReadAcl,
    GetBucketWebsite = ReadAcl,
    GetEncryptionConfiguration = ReadAcl,
    GetBucketOwnershipControls = ReadAcl,
    GetLifecycleConfiguration = ReadAcl,
    GetBucketObjectLockConfiguration = ReadAcl,
    GetPublicAccessBlock = Nothing,
    GetObjectAcl = ReadAcl,
    GetObject = Read,
    GetObjectTorrent = Read,
    GetObjectVersionAcl = ReadAcl,
    GetObjectVersion = Read,
    GetObjectVersionTorrent = Read,
    GetObjectTagging = Read,
    GetObjectVersionTagging = Read,
    GetObjectRetention = Read,
    GetObjectLegalHold = Read,
    GetReplicationConfiguration = ReadAcl,
    ListAllMyBuckets = Read,
    ListBucketMultipartUploads = Read,
    ListBucket = Read,
    ListBucketVersions = Read,
    ListMultipartUploadParts = Read,
    PutAccelerateConfiguration = WriteAcl,
    PutBucketAcl = WriteAcl,
    PutBucketCORS = WriteAcl,
    PutBucketLogging = WriteAcl,
    PutBucketNotification = WriteAcl,
    PutBucketPolicy = WriteAcl,
    PutBucketRequestPayment = WriteAcl,
    PutBucketTagging = WriteAcl,
    PutBucketVersioning = WriteAcl,
    PutBucketWebsite = WriteAcl,
    PutEncryptionConfiguration = WriteAcl,
    PutBucketOwnershipControls = WriteAcl,
    PostBucketLogging = WriteAcl,
    PutLifecycleConfiguration = WriteAcl,
    PutBucketObjectLockConfiguration = WriteAcl,
    PutObjectAcl = WriteAcl,
    PutObject = Write,
    PutObjectVersionAcl = WriteAcl,
    PutObjectTagging = Write,
    PutObjectVersionTagging = Write,
    PutObjectRetention = Write,
    PutObjectLegalHold = Write,
    BypassGovernanceRetention = Write,
    PutBucketPublicAccessBlock = WriteAcl,
    PutPublicAccessBlock = Nothing,
    PutReplicationConfiguration = WriteAcl,
    RestoreObject = Write,
}

/// Actions of other services, which are names here and nothing more.
pub(super) const OF_OTHERS: &[&str] = &[
    "iam:PutUserPolicy",
    "iam:GetUserPolicy",
    "iam:DeleteUserPolicy",
    "iam:ListUserPolicies",
    "iam:CreateRole",
    "iam:DeleteRole",
    "iam:GetRole",
    "iam:ModifyRole",
    "iam:ListRoles",
    "iam:PutRolePolicy",
    "iam:GetRolePolicy",
    "iam:ListRolePolicies",
    "iam:DeleteRolePolicy",
    "iam:CreateOIDCProvider",
    "iam:DeleteOIDCProvider",
    "iam:GetOIDCProvider",
    "iam:ListOIDCProviders",
    "sts:AssumeRole",
    "sts:AssumeRoleWithWebIdentity",
    "sts:GetSessionToken",
];

/// A set of actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Actions(u128);

impl Actions {
    pub fn all() -> Self {
        Self(u128::MAX)
    }

    pub fn add(&mut self, action: Action) {
        self.0 |= 1 << action as u8;
    }

    pub fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub fn has(self, action: Action) -> bool {
        self.0 & (1 << action as u8) != 0
    }
}
