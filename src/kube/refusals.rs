//! The sentences of servers that a decision depends on. Nothing else in these answers tells the
//! cause. No other file compares a server's message with a text.

use super::message::Refused;

/// The admission plugin OwnerReferencesPermissionEnforcement
/// (`plugin/pkg/admission/gc/gc_admission.go` of Kubernetes 1.36): "cannot set an ownerRef on a
/// resource you can't delete".
pub fn refuses_owner(refused: &Refused) -> bool {
    refused.code == 403 && refused.message.contains("ownerRef")
}

/// The supervisor of k3s does not renew the certificate of a Node that does not exist: "unable to
/// verify node identity: nodes \"rec\" not found".
pub fn misses_node(refused: &Refused) -> bool {
    refused.code == 401 && refused.message.contains("verify node identity")
}

/// The supervisor of k3s has another password for the name of the node (`pkg/nodepassword` of k3s
/// 1.36): "unable to verify password for node rec: hash does not match".
pub fn refuses_password(refused: &Refused) -> bool {
    let says = |word| refused.message.contains(word);
    refused.code == 403 && (says("password") || says("hash"))
}
