//! The server of the command line: its address, its CA if that is given, and whether it can be
//! reached.

use std::time::Duration;

use super::walk::{Walk, failed};
use crate::check::probe::access::Access;
use crate::check::{Finding, Mark};
use crate::core::join::command::Settings;
use crate::files::read::read;
use crate::identity::ApiAccess;
use crate::wire::api_config::{ApiConfig, Pem};
use crate::wire::endpoint::Endpoint;

/// Delay of the next attempt, as in kubeadm.
pub(super) const RETRY: Duration = Duration::from_secs(5);
/// The endpoint of the command line.
pub(super) fn endpoint(settings: &Settings) -> Result<Endpoint, Finding> {
    let endpoint = Endpoint::parse(&settings.server);
    endpoint.map_err(|line| failed("name-resolution", &line, "is the endpoint HOST:PORT?"))
}

/// The file of `--certificate-authority`.
pub(super) fn authority(settings: &Settings) -> Result<Option<Pem>, Finding> {
    let Some(path) = &settings.authority else {
        return Ok(None);
    };
    let source = path.display().to_string();
    match read(path) {
        Ok(bytes) => Ok(Some(pem(&source, bytes))),
        Err(why) => {
            let line = format!("{source}: {why}");
            Err(failed("ca", &line, "give the CA of the API server"))
        }
    }
}

/// The checks `name-resolution` and `tcp`, as `nodelet check` has them.
pub(super) fn reach(walk: &mut Walk<'_>, config: &ApiConfig) -> Result<(), Finding> {
    let api = walk
        .api(config)
        .map_err(|why| failed("ca", &why, "is it a CA in PEM form?"))?;
    let access = Access::new(ApiAccess {
        config: config.clone(),
        api,
        bootstrap: None,
    });
    let (finding, addresses) = access.resolve(walk.clock())?;
    walk.add(finding);
    let finding = access.dial(&addresses);
    match finding.mark {
        Mark::Failed => Err(finding),
        _ => {
            walk.add(finding);
            Ok(())
        }
    }
}

pub(super) fn pem(source: &str, bytes: Vec<u8>) -> Pem {
    Pem {
        file: None,
        source: source.to_owned(),
        bytes,
    }
}
