//! The kernel files of a healthy Raspberry Pi, with each source of the conditions about the board's
//! health, below `root` of a folder.

use support::Folder;

/// The alarm of the under-voltage detection.
pub const ALARM: &str = "root/sys/class/hwmon/hwmon1/in0_lcrit_alarm";
/// The number of oopses since boot.
pub const OOPSES: &str = "root/sys/kernel/oops_count";

const FILES: &[(&str, &str)] = &[
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/os-release", "PRETTY_NAME=\"Test OS\"\n"),
    ("proc/device-tree/compatible", "raspberrypi,4-model-b\0"),
    ("proc/loadavg", "0.00 0.00 0.00 1/100 1000\n"),
    ("proc/meminfo", "MemTotal: 1048576 kB\nMemFree: 1048576 kB\nAnonPages: 0 kB\nCached: 0 kB\n"),
    (
        "proc/self/mountinfo",
        "25 1 179:2 / / ro,noatime - ext4 /dev/root rw\n\
         26 25 179:1 / /boot ro - vfat /dev/mmcblk0p1 rw\n",
    ),
    ("proc/stat", "btime 1782990000\n"),
    ("proc/sys/kernel/hung_task_detect_count", "0\n"),
    ("proc/sys/kernel/osrelease", "6.12.25\n"),
    ("proc/sys/kernel/pid_max", "32768\n"),
    ("proc/sys/kernel/random/boot_id", "5be2ad02\n"),
    ("proc/sys/kernel/tainted", "1024\n"),
    ("proc/uptime", "5000.00 100.00\n"),
    ("proc/vmstat", "nr_free_pages 1\noom_kill 0\n"),
    ("run/systemd/timesync/synchronized", ""),
    ("sys/block/mmcblk0/device/life_time", "0x01 0x01\n"),
    ("sys/block/mmcblk0/device/pre_eol_info", "0x01\n"),
    ("sys/block/mmcblk0/device/type", "MMC\n"),
    ("sys/class/hwmon/hwmon0/name", "cpu_thermal\n"),
    ("sys/class/hwmon/hwmon1/in0_lcrit_alarm", "0\n"),
    ("sys/class/hwmon/hwmon1/name", "rpi_volt\n"),
    ("sys/class/net/eth0/carrier_changes", "2\n"),
    ("sys/class/net/eth0/device/uevent", "\n"),
    ("sys/class/thermal/cooling_device0/cur_state", "0\n"),
    ("sys/class/thermal/cooling_device0/max_state", "4\n"),
    ("sys/class/thermal/cooling_device0/type", "cpufreq-cpu0\n"),
    ("sys/class/thermal/thermal_zone0/mode", "enabled\n"),
    ("sys/class/thermal/thermal_zone0/temp", "48000\n"),
    ("sys/class/thermal/thermal_zone0/trip_point_0_temp", "110000\n"),
    ("sys/class/thermal/thermal_zone0/trip_point_0_type", "critical\n"),
    ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
    ("sys/dev/block/179:2/uevent", "DEVNAME=mmcblk0p2\n"),
    ("sys/devices/system/cpu/cpu0/online", "1\n"),
    ("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "1800000\n"),
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1800000\n"),
    ("sys/fs/ext4/mmcblk0p2/errors_count", "0\n"),
    ("sys/kernel/oops_count", "0\n"),
    ("sys/kernel/rcu_stall_count", "0\n"),
    ("sys/kernel/softlockup_count", "0\n"),
];

/// Writes the files; returns the value of `--host-root`.
pub fn healthy(folder: &Folder) -> String {
    for (file, content) in FILES {
        folder.write(&format!("root/{file}"), content);
    }
    std::fs::create_dir_all(folder.path().join("root/var/lib/kubelet")).unwrap();
    folder.path().join("root").display().to_string()
}
