//! The server of the command line: its address, its CA if that is given, and whether it can be
//! reached.

use std::time::Duration;

use super::walk::{Failed, Walk, failed};
use crate::check::Mark;
use crate::check::probe::access::{dial, resolve};
use crate::core::join::command::Settings;
use crate::files::read::read;
use crate::wire::api::Api;
use crate::wire::api_config::{ApiConfig, Pem};
use crate::wire::endpoint::Endpoint;

/// Delay of the next attempt, as in kubeadm.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// The file of `--certificate-authority`.
fn authority(settings: &Settings) -> Result<Option<Pem>, Failed> {
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

/// Carries out the checks `name-resolution` and `tcp` of `nodelet check`. Returns how to reach the
/// server, without credentials, and a client that is not connected yet. Without
/// `--certificate-authority` the client does not verify the server.
pub(super) fn reach(walk: &mut Walk<'_>) -> Result<(ApiConfig, Api), Failed> {
    let endpoint = Endpoint::parse(&walk.settings.server);
    let endpoint =
        endpoint.map_err(|line| failed("name-resolution", &line, "is the endpoint HOST:PORT?"))?;
    let mut config = ApiConfig::at(endpoint);
    config.ca = authority(walk.settings)?;
    config.insecure = config.ca.is_none();
    let api = walk.api(&config, "ca", "is it a CA in PEM form?")?;
    let (finding, addresses) = resolve(&config.endpoint, walk.clock())?;
    walk.add(finding);
    let finding = dial(&addresses);
    match finding.mark {
        Mark::Failed => Err(finding.into()),
        _ => {
            walk.add(finding);
            Ok((config, api))
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
