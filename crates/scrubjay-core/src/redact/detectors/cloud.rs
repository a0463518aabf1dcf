//! Keys of cloud providers.

use super::{Detector, random, token};
use crate::redact::shape::ByteClass;

pub(super) const ALL: &[Detector] = &[
    token("aws-access-key", &["AKIA", "ASIA", "ABIA", "ACCA"], ByteClass::Upper, 16..17),
    token("google-api-key", &["AIza"], ByteClass::Dashed, 35..36),
    token("google-oauth-token", &["ya29."], ByteClass::Dashed, 20..2048),
    token("google-oauth-secret", &["GOCSPX-"], ByteClass::Dashed, 28..29),
    token("digitalocean-token", &["dop_v1_", "doo_v1_", "dor_v1_"], ByteClass::Hex, 64..65),
    token("alibaba-access-key", &["LTAI"], ByteClass::Alnum, 12..27),
    token("cloudflare-ca-key", &["v1.0-"], ByteClass::Dashed, 100..200),
    token("terraform-token", &[".atlasv1."], ByteClass::Dashed, 60..80),
    token("vault-token", &["hvs.", "hvb.", "hvr."], ByteClass::Dashed, 24..300),
    token("doppler-token", &["dp.pt.", "dp.st.", "dp.ct.", "dp.sa."], ByteClass::Alnum, 40..45),
    token("pulumi-token", &["pul-"], ByteClass::Hex, 40..41),
    token("age-secret-key", &["AGE-SECRET-KEY-1"], ByteClass::Upper, 58..59),
    token("fly-token", &["fo1_", "FlyV1 fm2_", "fm2_"], ByteClass::Base64, 40..4096),
    token("databricks-token", &["dapi"], ByteClass::Hex, 32..33),
    random("azure-storage-key", &["AccountKey=", "SharedAccessKey="], ByteClass::Base64, 40..90),
    random("azure-sas-signature", &["&sig=", "?sig="], ByteClass::Percent, 20..140),
];
