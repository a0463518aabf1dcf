//! Tokens of code forges and package registries.

use super::{Detector, random, token};
use crate::redact::shape::ByteClass;

pub(super) const ALL: &[Detector] = &[
    token("github-token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], ByteClass::Alnum, 36..256),
    token("github-token", &["github_pat_"], ByteClass::Word, 59..256),
    token(
        "gitlab-token",
        &["glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"],
        ByteClass::Dashed,
        20..256,
    ),
    token("bitbucket-token", &["ATBB"], ByteClass::Alnum, 28..33),
    token("npm-token", &["npm_"], ByteClass::Alnum, 36..37),
    token("pypi-token", &["pypi-AgE"], ByteClass::Dashed, 50..512),
    token("rubygems-key", &["rubygems_"], ByteClass::Hex, 48..49),
    token("docker-token", &["dckr_pat_", "dckr_oat_"], ByteClass::Dashed, 27..64),
    token("sourcegraph-token", &["sgp_"], ByteClass::Word, 40..90),
    token("jetbrains-token", &["perm:", "perm-"], ByteClass::Base64, 60..400),
    token("atlassian-token", &["ATATT3"], ByteClass::Base64, 60..300),
    token("postman-key", &["PMAK-"], ByteClass::Dashed, 59..60),
    random("linear-key", &["lin_api_", "lin_oauth_"], ByteClass::Alnum, 32..70),
];
