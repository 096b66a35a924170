use serde_json::{Value, json};

use super::*;
use crate::config::Config;
use crate::kube::facts::{DefaultRoute, Facts, Read, Unread};

/// `eth0 192.0.2.10 fe80::2`; `!` before the name: down, `>`: point-to-point.
fn interfaces(lines: &[&str]) -> Read<Vec<Interface>> {
    let interface = |line: &&str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        Interface {
            name: name.trim_matches(['!', '>']).to_owned(),
            up: !name.contains('!'),
            loopback: name.starts_with("lo"),
            point_to_point: name.contains('>'),
            addresses: words.map(|ip| ip.parse().unwrap()).collect(),
        }
    };
    Ok(lines.iter().map(interface).collect())
}

fn network(routes: &[&str], lines: &[&str]) -> Network {
    let route = |line: &&str| {
        let (interface, gateway) = line.split_once(' ').unwrap();
        DefaultRoute { interface: interface.to_owned(), gateway: gateway.parse().unwrap() }
    };
    Network {
        default_routes: Ok(Some(routes.iter().map(route).collect())),
        interfaces: interfaces(lines),
        hosts: Ok(Vec::new()),
        dns: Ok(Vec::new()),
    }
}

/// The address that the default routes choose, or the error, where IPv4 is preferred and where IPv6
/// is.
fn choice(network: &Network) -> [String; 2] {
    [false, true].map(|prefers_v6| {
        let chosen = by_default_route(prefers_v6, network);
        chosen.map_or_else(|error| error, |ip| ip.to_string())
    })
}

fn config(node_ip: &str, cloud_provider: &str) -> NodeConfig {
    let cloud_provider = format!("--cloud-provider={cloud_provider}");
    Config::of(&[&format!("--node-ip={node_ip}"), &cloud_provider]).node
}

fn addresses(ips: &[&str]) -> Value {
    let mut list: Vec<Value> =
        ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    list.push(json!({"type": "Hostname", "address": "pi"}));
    list.into()
}

/// The Node `seen` after the setter ran, and its error.
fn set_on(seen: &Value, config: &NodeConfig, network: &Network) -> (Value, Option<String>) {
    let mut node = seen.clone();
    let error = set(&mut node, config, network).err();
    let first = node.clone();
    assert_eq!(set(&mut node, config, network).err(), error);
    assert_eq!(node, first, "the second run changes nothing");
    (node, error)
}

/// setters_test.go TestNodeAddress 1 to 10, 12 and 15, and TestNodeAddress_NoCloudProvider (dual
/// stack). The annotation (10) is compared in every row with an external cloud.
#[test]
fn test_node_address() {
    let v4 = network(&["eth0 192.0.2.1"], &["eth0 10.0.0.2 10.0.0.1 10.1.1.1"]);
    let v6 = network(&["eth0 fe80::1"], &["eth0 2001:db2::2"]);
    let routes = ["eth0 192.0.2.1", "eth0 fe80::1"];
    let both = network(&routes, &["eth0 10.1.1.1 10.1.1.2 2001:db2::3"]);
    for (name, cloud, node_ip, network, want) in [
        ("1, 10", "external", "10.0.0.1", &v4, &["10.0.0.1"][..]),
        ("2", "", "0.0.0.0", &v4, &["10.0.0.2"]),
        ("3", "", "::", &v6, &["2001:db2::2"]),
        ("4", "external", "0.0.0.0", &v4, &["10.0.0.2"]),
        ("5", "external", "::", &v6, &["2001:db2::2"]),
        ("6", "", "", &v4, &["10.0.0.2"]),
        ("7", "", "", &v6, &["2001:db2::2"]),
        ("8", "external", "", &v4, &[]),
        ("9", "external", "", &v6, &[]),
        ("12", "", "10.1.1.1", &v4, &["10.1.1.1"]),
        ("2, dual stack", "", "0.0.0.0", &both, &["10.1.1.1"]),
        ("3, dual stack", "", "::", &both, &["2001:db2::3"]),
        ("15", "external", "2001:db2::3,10.1.1.2", &both, &["2001:db2::3", "10.1.1.2"]),
        ("NoCloudProvider", "", "10.1.1.1,2001:db2::3", &both, &["10.1.1.1", "2001:db2::3"]),
    ] {
        let mut want = json!({"status": {"addresses": addresses(want)}});
        if cloud == "external" && !["", "0.0.0.0", "::"].contains(&node_ip) {
            want["metadata"] = json!({"annotations": {PROVIDED_NODE_IP: node_ip}});
        }
        assert_eq!(set_on(&json!({}), &config(node_ip, cloud), network), (want, None), "{name}");
    }
}

/// setters_test.go TestNodeAddress 11, 13, 14, 16 and 17.
#[test]
fn test_node_address_on_a_node_with_addresses() {
    let pair = "10.1.1.1,2600:1f14:1d4:d101::ba3d";
    let network = network(&[], &["eth0 10.1.1.1 2600:1f14:1d4:d101::ba3d"]);
    let seen = |annotation: &str, addresses: &Value| {
        let mut annotations = json!({PROVIDED_NODE_IP: annotation, "other": "stays"});
        object::retain(object::members(&mut annotations, &[]), &|_, text| text != "");
        json!({"metadata": {"annotations": annotations}, "status": {"addresses": addresses}})
    };
    let clouds = json!([
        {"type": "ExternalIP", "address": "203.0.113.9", "of": "the cloud"},
        {"type": "InternalIP", "address": "10.9.9.9"},
    ]);
    let ours = addresses(&["10.1.1.1"]);
    for (name, annotation, cloud, node_ip, want, addresses) in [
        ("11 addresses kept", "10.1.1.1", "external", "10.1.1.1", "10.1.1.1", &clouds),
        ("13 stale annotation, stale addresses", "9.9.9.9", "", "10.1.1.1", "", &ours),
        ("14 wrong annotation", "9.9.9.9", "external", "10.1.1.1", "10.1.1.1", &clouds),
        ("16 upgrade", "10.1.1.1", "external", pair, pair, &clouds),
        ("17 downgrade", pair, "external", "10.1.1.1", "10.1.1.1", &clouds),
        ("an unspecified address is no provided IP", "9.9.9.9", "external", "::", "", &clouds),
    ] {
        let got = set_on(&seen(annotation, &clouds), &config(node_ip, cloud), &network);
        assert_eq!(got, (seen(want, addresses), None), "{name}");
    }
}

/// k3s `pkg/agent/run.go` updateAddressAnnotations. With an external cloud the controller writes
/// the addresses that the annotations have.
#[test]
fn a_board_of_k3s_annotates_its_addresses_as_a_k3s_agent_does() {
    let network = network(&["eth0 192.0.2.1", "eth0 fe80::1"], &["eth0 10.1.1.1 2001:db2::3"]);
    let pair = "10.1.1.1,2001:db2::3";
    let stale = json!({
        "metadata": {"annotations": {"k3s.io/internal-ip": "10.9.9.9", "other": "stays"}},
        "status": {"addresses": addresses(&["10.9.9.9"])},
    });
    // The controller has written it, of k3s.io/external-ip.
    let external = json!({"type": "ExternalIP", "address": "203.0.113.7"});
    let with_external = |own: &str| {
        let of = addresses(&[own]);
        json!([of[0], external, of[1]])
    };
    let by_controller = json!({"status": {"addresses": with_external("10.9.9.9")}});
    for (seen, node_ip, cloud, want, written) in [
        (&by_controller, "", "", "10.1.1.1", with_external("10.1.1.1")),
        (&json!({}), "", "", "10.1.1.1", addresses(&["10.1.1.1"])),
        (&json!({}), pair, "", pair, addresses(&pair.split(',').collect::<Vec<_>>())),
        (&stale, "", "", "10.1.1.1", addresses(&["10.1.1.1"])),
        (&json!({}), "", "external", "10.1.1.1", addresses(&[])),
        (&stale, "", "external", "10.1.1.1", addresses(&["10.9.9.9"])),
    ] {
        let config = NodeConfig { is_of_k3s: true, ..config(node_ip, cloud) };
        let (node, error) = set_on(seen, &config, &network);
        assert_eq!(error, None);
        let annotations = &node["metadata"]["annotations"];
        for distribution in ["k3s", "rke2"] {
            assert_eq!(annotations[format!("{distribution}.io/internal-ip")], want);
            assert_eq!(annotations[format!("{distribution}.io/hostname")], "pi");
        }
        assert_eq!(annotations["other"], seen["metadata"]["annotations"]["other"]);
        assert_eq!(node["status"]["addresses"], written, "{node_ip} {cloud}");
        assert!(needs_lookup(&config, &network) == node_ip.is_empty(), "the choice may need DNS");
    }
}

/// kubelet_node_status_test.go TestValidateNodeIPParam, and setters_test.go
/// TestNodeAddress_NoCloudProvider (10.1.1.1, 127.0.0.1, secondary 224.0.0.0).
#[test]
fn test_validate_node_ip_param() {
    let network = network(&[], &["lo 127.0.0.1 ::1", "!eth0 10.1.1.1 fd01::1234"]);
    let nothing = json!({"metadata": {"annotations": {PROVIDED_NODE_IP: "old"}}, "status": {}});
    for (node_ip, want) in [
        ("127.0.0.1", "nodeIP can't be loopback address"),
        ("::1", "nodeIP can't be loopback address"),
        ("::ffff:127.0.0.1", "nodeIP can't be loopback address"),
        ("224.0.0.1", "nodeIP can't be a multicast address"),
        ("ff00::1", "nodeIP can't be a multicast address"),
        ("169.254.0.1", "nodeIP can't be a link-local unicast address"),
        ("fe80::0202:b3ff:fe1e:8329", "nodeIP can't be a link-local unicast address"),
        ("1.2.3.4", "node IP: \"1.2.3.4\" not found in the host's network interfaces"),
        ("10.1.1.1,ff02::1", "nodeIP can't be a multicast address"),
        ("fd01::1234,224.0.0.0", "nodeIP can't be a multicast address"),
    ] {
        let flag = if node_ip.contains(',') { "secondaryNodeIP" } else { "nodeIP" };
        let error = Some(format!("failed to validate {flag}: {want}"));
        // The Node and its annotation are unchanged.
        for cloud in ["", "external"] {
            let got = set_on(&nothing, &config(node_ip, cloud), &network);
            assert_eq!(got, (nothing.clone(), error.clone()), "{node_ip}");
        }
    }
    // Addresses of the host; the interface may be down.
    for good in ["10.1.1.1", "fd01::1234"] {
        let want = json!({"status": {"addresses": addresses(&[good])}});
        assert_eq!(set_on(&json!({}), &config(good, ""), &network), (want, None));
    }
    // Unspecified addresses are never valid.
    for zeros in ["0.0.0.0", "::"] {
        let error = validate(zeros.parse().unwrap(), &network).unwrap_err();
        assert_eq!(error, "nodeIP can't be an all zeros address");
    }
}

/// Go's resolver stops at Debian's line `127.0.1.1`; then the default route decides.
#[test]
fn the_host_name_comes_before_the_default_route_and_etc_hosts_before_dns() {
    let network = network(
        &["eth0 192.0.2.1"],
        &["lo 127.0.0.1 127.0.1.1", "eth0 192.0.2.10 192.0.2.11 fd00::5"],
    );
    let list = |ips: &str| ips.split_whitespace().map(|ip| ip.parse().unwrap()).collect();
    for (hosts, dns, node_ip, want) in [
        ("192.0.2.11", "", "", "192.0.2.11"),
        ("127.0.1.1", "", "", "192.0.2.10"),
        ("127.0.1.1 192.0.2.11", "", "", "192.0.2.11"),
        ("198.51.100.7", "", "", "192.0.2.10"),
        ("fd00::5 192.0.2.11", "", "", "192.0.2.11"),
        ("fd00::5 192.0.2.11", "", "::", "fd00::5"),
        ("192.0.2.11 fd00::5", "", "0.0.0.0", "192.0.2.11"),
        ("fd00::5", "", "", "fd00::5"),
        ("192.0.2.11", "", "::", "192.0.2.11"),
        ("::ffff:192.0.2.11 fd00::5", "", "", "192.0.2.11"),
        ("", "192.0.2.11", "", "192.0.2.11"),
        ("", "fd00::5 192.0.2.11", "", "192.0.2.11"),
        ("", "fd00::5 192.0.2.11", "::", "fd00::5"),
        ("", "198.51.100.7 127.0.0.1", "", "192.0.2.10"),
        ("fd00::5", "192.0.2.11", "", "fd00::5"),
        ("127.0.1.1", "192.0.2.11", "", "192.0.2.10"),
    ] {
        let network = Network { hosts: Ok(list(hosts)), dns: Ok(list(dns)), ..network.clone() };
        let chosen = choose(&json!({}), &config(node_ip, ""), &network);
        assert_eq!(chosen, Ok(want.parse().unwrap()), "{hosts:?} {dns:?} {node_ip}");
    }
    // A name that is an IP is not compared with the interfaces.
    let mut node = json!({});
    let named = NodeConfig { name: "010.9.9.9".to_owned(), ..config("", "") };
    assert_eq!(set(&mut node, &named, &network), Ok(()));
    let mut want = addresses(&["10.9.9.9"]);
    want[1]["address"] = "010.9.9.9".into();
    assert_eq!(node["status"]["addresses"], want);
    for (node_ip, cloud, name, hosts, want) in [
        ("", "", "pi", "", true),
        ("0.0.0.0", "", "pi", "", true),
        ("::", "external", "pi", "", true),
        ("10.0.0.1", "", "pi", "", false),
        ("", "external", "pi", "", false),
        ("", "", "10.0.0.9", "", false),
        ("", "", "pi", "127.0.1.1", false),
    ] {
        let network = Network { hosts: Ok(list(hosts)), ..network.clone() };
        let named = NodeConfig { name: name.to_owned(), ..config(node_ip, cloud) };
        let needs = needs_lookup(&named, &network);
        assert_eq!(needs, want, "{node_ip} {cloud} {name} {hosts:?}");
    }
}

/// A card that cannot be read has no other entry than before.
#[test]
fn while_names_cannot_be_read_the_node_keeps_an_address_that_an_interface_has() {
    let found = &["eth0 192.0.2.10 192.0.2.11 fd00::5"];
    let network = network(&["eth0 192.0.2.1"], found);
    let unread = Err(Unread::new("etc/hosts", "I/O error"));
    let no_file = Network { hosts: unread, dns: Ok(vec![[192, 0, 2, 12].into()]), ..network };
    // A restart, and no name server has answered to this process.
    let unread = Err(Unread::new("DNS", "no result yet"));
    let no_answer = Network { hosts: Ok(Vec::new()), dns: unread, ..no_file.clone() };
    for network in [&no_file, &no_answer] {
        keeps_its_address(network);
    }
    assert!(!needs_lookup(&config("", ""), &no_file));
    assert!(needs_lookup(&config("", ""), &no_answer));
}

fn keeps_its_address(network: &Network) {
    for (had, node_ip, want) in [
        ("192.0.2.11", "", "192.0.2.11"),
        ("fd00::5", "", "fd00::5"),
        ("198.51.100.7", "", "192.0.2.10"),
        ("192.0.2.10", "192.0.2.11", "192.0.2.11"),
    ] {
        let mut node = json!({"status": {"addresses": addresses(&[had])}});
        assert_eq!(set(&mut node, &config(node_ip, ""), network), Ok(()));
        assert_eq!(node["status"]["addresses"], addresses(&[want]), "{had} {node_ip}");
    }
    let mut node = json!({});
    assert_eq!(set(&mut node, &config("", ""), network), Ok(()));
    assert_eq!(node["status"]["addresses"], addresses(&["192.0.2.10"]));
}

/// interface_test.go TestChooseHostInterfaceFromRoute, TestGetIPFromInterface (v4, v6, wrong
/// family, down, unknown), TestGetIPFromLoopbackInterface, TestFinalIP and TestGetAllDefaultRoutes
/// (none, only v4, only v6, both).
#[test]
fn test_choose_host_interface_from_route() {
    let none = "unable to select an IP from default routes.";
    let empty = "no default routes found in \"/proc/net/route\" or \"/proc/net/ipv6_route\"";
    let unknown = "route ip+net: no such network interface wlan0";
    let v4 = &["eth3 10.254.0.1"][..];
    let v6 = &["eth3 fe80::1"][..];
    let dual = &["eth3 10.254.0.1", "eth3 fe80::1"][..];
    let lo = "lo 127.0.0.1 ::1";
    for (name, routes, interfaces, want) in [
        ("IPv4 only", v4, &[lo, "eth3 fe80::2 10.254.71.145"][..], ["10.254.71.145"; 2]),
        ("IPv6 only", v6, &[lo, "eth3 fe80::2 2001::200"], ["2001::200"; 2]),
        ("dual stack", dual, &[lo, "eth3 10.254.71.145 2001::10"], ["10.254.71.145", "2001::10"]),
        ("IPv6 route, IPv4 addresses alone", v6, &[lo, "eth3 10.254.71.145"], [none; 2]),
        (
            "link-local NIC, global loopback",
            dual,
            &["lo 127.0.0.1 10.1.1.1 ::1 fd00:1:1::1", "eth3 169.254.1.1 fe80::2"],
            ["10.1.1.1", "fd00:1:1::1"],
        ),
        (
            "global NIC wins over global loopback",
            dual,
            &["lo 10.1.1.1 fd00:1:1::1", "eth3 192.168.1.1 fd00::200"],
            ["192.168.1.1", "fd00::200"],
        ),
        ("all link-local", dual, &[lo, "eth3 169.254.1.1 fe80::2"], [none; 2]),
        ("link-local NIC, loopback down", v4, &["!lo 10.1.1.1", "eth3 169.254.1.1"], [none; 2]),
        ("no route", v4, &[lo, "eth3 169.254.1.1", "eth4 10.253.71.145"], [none; 2]),
        (
            "interface down: next route",
            &["eth3 10.254.0.1", "eth4 10.253.0.1"],
            &[lo, "!eth3 10.254.71.145", "eth4 10.253.71.145"],
            ["10.253.71.145"; 2],
        ),
        (
            "file order decides, not metrics",
            &["eth4 10.253.0.1", "eth3 10.254.0.1"],
            &[lo, "eth3 10.254.71.145", "eth4 10.253.71.145"],
            ["10.253.71.145"; 2],
        ),
        (
            "unknown interface ends the search",
            &["wlan0 10.253.0.1", "eth3 10.254.0.1"],
            &[lo, "eth3 10.254.71.145"],
            [unknown; 2],
        ),
        ("no gateway", &["ppp0 0.0.0.0"], &[lo, ">ppp0 100.64.0.7"], ["100.64.0.7"; 2]),
        (
            "multicast, broadcast and unspecified addresses are skipped",
            dual,
            &["eth3 224.0.0.1 255.255.255.255 0.0.0.0 ff02::1 :: 10.0.0.1 fd00::1"],
            ["10.0.0.1", "fd00::1"],
        ),
        ("no routes", &[], &[lo, "eth3 10.254.71.145"], [empty; 2]),
    ] {
        assert_eq!(choice(&network(routes, interfaces)), want, "{name}");
    }
}

/// interface_test.go TestGetIPFromHostInterfaces; one error text for all cases.
#[test]
fn test_get_ip_from_host_interfaces() {
    let none = "no acceptable interface with global unicast address found on host";
    for (name, lines, want) in [
        ("no interfaces", &[][..], [none; 2]),
        ("down", &["!eth0 10.0.0.1"], [none; 2]),
        ("loopback only", &["lo 10.0.0.1"], [none; 2]),
        ("point-to-point only", &[">ppp0 10.0.0.1"], [none; 2]),
        ("no addresses", &["eth0"], [none; 2]),
        ("link-local only", &["eth0 fe80::2 169.254.0.2"], [none; 2]),
        ("IPv4", &["eth0 10.254.71.145"], ["10.254.71.145"; 2]),
        ("IPv6", &["eth0 2001::200"], ["2001::200"; 2]),
        (
            "dual, in index order",
            &["lo 127.0.0.1", "eth0 fe80::2", "eth1 2001::10 10.0.0.1", "eth2 10.0.0.2 2001::20"],
            ["10.0.0.1", "2001::10"],
        ),
    ] {
        let network = Network { default_routes: Ok(None), ..network(&[], lines) };
        assert_eq!(choice(&network), want, "{name}");
    }
}

/// interface_test.go TestGetIPFromInterface (addrs error), TestChooseHostInterfaceFromRoute (addr
/// failure), TestGetIPFromHostInterfaces (list error, addr failure) and TestGetAllDefaultRoutes
/// (file open failures).
#[test]
fn without_the_network_facts_the_addresses_are_unchanged() {
    let seen = json!({"status": {"addresses": addresses(&["192.0.2.99"])}});
    let example = Facts::example().network;
    let denied = Err(Unread::new("proc/net/route", "permission denied"));
    let routes = Network { default_routes: denied, ..example.clone() };
    let many = Err(Unread::new("rtnetlink", "too many open files"));
    let interfaces = Network { interfaces: many, ..example };
    for (network, node_ip, error) in [
        (&routes, "", "can't get ip address of node pi. error: proc/net/route: permission denied"),
        (&interfaces, "", "can't get ip address of node pi. error: rtnetlink: too many open files"),
        (&interfaces, "192.0.2.10", "failed to validate nodeIP: rtnetlink: too many open files"),
    ] {
        let got = set_on(&seen, &config(node_ip, ""), network);
        assert_eq!(got, (seen.clone(), Some(error.to_owned())));
        // A k3s agent needs an address for its annotations. Its new Node gets none without one, and
        // keeps an annotation that another program set.
        let of_k3s = NodeConfig { is_of_k3s: true, ..config(node_ip, "external") };
        for seen in [json!({}), json!({"metadata": {"annotations": {PROVIDED_NODE_IP: "9.9.9.9"}}})]
        {
            let got = set_on(&seen, &of_k3s, network);
            assert_eq!(got, (seen, Some(error.to_owned())));
        }
    }
}
