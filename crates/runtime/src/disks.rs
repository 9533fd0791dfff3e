//! The disks that a daemon's data is on, under the names that Ceph gives them.
//!
//! Nothing is invented: a disk of which neither udev nor sysfs knows model and serial number has no id.
//!
//! Source: get_raw_devices, get_device_id, get_device_path, get_device_vendor in src/common/blkdev.cc.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::HostFiles;

/// Layers of device mapper that are looked through.
const MAX_LAYERS: usize = 16;

/// One disk of this host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disk {
    /// Of the kernel: `sda`, `nvme0n1`.
    pub name: String,
    /// `VENDOR_MODEL_SERIAL`, the same on whichever host the disk is.
    pub id: Option<String>,
    /// The plug that it is in: a link in `/dev/disk/by-path`.
    pub path: Option<String>,
    /// In small letters.
    pub vendor: Option<String>,
}

impl HostFiles {
    /// The disks below a block device or a file, in the order of their names. Device mapper's volumes are
    /// looked through.
    pub fn disks_below(&self, at: &Path) -> Vec<Disk> {
        let Ok(meta) = std::fs::metadata(at) else { return Vec::new() };
        let number = if meta.rdev() != 0 { meta.rdev() } else { meta.dev() };
        let Some(top) = self.disk(rustix::fs::major(number), rustix::fs::minor(number)) else {
            return Vec::new();
        };
        let mut names = BTreeSet::new();
        self.raw_disks(&top, MAX_LAYERS, &mut names);
        names.into_iter().map(|name| self.disk_named(name)).collect()
    }

    fn raw_disks(&self, name: &str, layers: usize, out: &mut BTreeSet<String>) {
        if !name.starts_with("dm-") {
            out.insert(self.whole(name));
            return;
        }
        let below = std::fs::read_dir(self.sys.join("class/block").join(name).join("slaves"));
        for entry in below.into_iter().flatten().flatten().filter(|_| layers > 0) {
            self.raw_disks(&entry.file_name().to_string_lossy(), layers - 1, out);
        }
    }

    /// The whole disk of a part.
    fn whole(&self, name: &str) -> String {
        let at = self.sys.join("class/block").join(name).canonicalize().ok();
        let whole = at.filter(|at| at.join("partition").exists());
        let whole = whole.and_then(|at| Some(at.parent()?.file_name()?.to_string_lossy().into_owned()));
        whole.unwrap_or_else(|| name.to_owned())
    }

    fn disk_named(&self, name: String) -> Disk {
        let told = self.udev_tells(&name);
        let attribute = |of: &str| {
            let text = std::fs::read_to_string(self.sys.join("class/block").join(&name).join(of)).ok()?;
            text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
        };
        let model_and_serial = || Some(attribute("device/model")? + "_" + &attribute("device/serial")?);
        let id = id_by_udev(&told).or_else(model_and_serial).map(|id| id.replace(' ', "_"));
        let first_word = |model: String| model.split(' ').find(|w| !w.is_empty()).map(str::to_owned);
        let of_udev = |key: &str| told.get(key).cloned();
        let by_udev = of_udev("ID_VENDOR").or_else(|| first_word(of_udev("ID_MODEL")?));
        let by_sysfs =
            || attribute("device/device/vendor").or_else(|| first_word(attribute("device/model")?));
        let vendor = by_udev.map(|v| v.to_lowercase()).or_else(by_sysfs);
        Disk { path: self.plug(&name), id, vendor, name }
    }

    /// What udev has found out about a disk.
    fn udev_tells(&self, name: &str) -> BTreeMap<String, String> {
        let number = std::fs::read_to_string(self.sys.join("class/block").join(name).join("dev"));
        let Ok(number) = number else { return BTreeMap::new() };
        let told = std::fs::read_to_string(self.udev.join(format!("b{}", number.trim())));
        let pair = |line: &str| line.strip_prefix("E:")?.split_once('=').map(|(k, v)| (k.into(), v.into()));
        told.unwrap_or_default().lines().filter_map(pair).collect()
    }

    fn plug(&self, name: &str) -> Option<String> {
        let links = std::fs::read_dir(self.dev.join("disk/by-path")).ok()?;
        let mut links: Vec<_> = links.flatten().map(|entry| entry.path()).collect();
        links.sort_unstable();
        let leads = |at: &Path| std::fs::read_link(at).is_ok_and(|to| to.file_name() == Some(name.as_ref()));
        links.into_iter().find(|at| leads(at)).map(|at| at.display().to_string())
    }
}

fn id_by_udev(told: &BTreeMap<String, String>) -> Option<String> {
    let field = |name: &str| told.get(name).filter(|text| !text.is_empty()).cloned();
    let model = match field("ID_MODEL") {
        // The volume's, not the disk's.
        Some(model) if model.starts_with("LVM PV ") => {
            field("ID_MODEL_ENC").map(|text| text.replace("\\x20", " ").trim_end_matches(' ').to_owned())
        }
        other => other,
    };
    let by_parts = |parts: &[Option<String>]| {
        let all: Option<Vec<String>> = parts.iter().cloned().collect();
        all.map(|all| all.join("_"))
    };
    by_parts(&[field("ID_VENDOR"), model.clone(), field("ID_SCSI_SERIAL")])
        .or_else(|| by_parts(&[model, field("ID_SERIAL_SHORT")]))
        .or_else(|| {
            let serial = field("ID_SERIAL")?;
            // These hide who made them.
            Some(if serial.starts_with("MTFD") { format!("Micron_{serial}") } else { serial })
        })
}

/// What `ceph osd metadata` and `ceph mon metadata` show of a daemon's disks.
///
/// Source: get_device_metadata in src/common/blkdev.cc.
pub fn disk_metadata(disks: &[Disk]) -> BTreeMap<String, String> {
    let pairs = |of: fn(&Disk) -> Option<&String>| {
        let pair = |disk: &Disk| Some(format!("{}={}", disk.name, of(disk)?));
        disks.iter().filter_map(pair).collect::<Vec<_>>().join(",")
    };
    let names = disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(",");
    [
        ("devices".to_owned(), names),
        ("device_ids".to_owned(), pairs(|disk| disk.id.as_ref())),
        ("device_paths".to_owned(), pairs(|disk| disk.path.as_ref())),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: impl AsRef<Path>, text: &str) {
        std::fs::create_dir_all(at.as_ref().parent().expect("a folder")).expect("made");
        std::fs::write(at, text).expect("written");
    }

    fn host(root: &Path) -> HostFiles {
        HostFiles {
            sys: root.join("sys"),
            proc: root.join("proc"),
            udev: root.join("udev"),
            dev: root.join("dev"),
        }
    }

    #[test]
    fn ids_are_made_as_ceph_makes_them() {
        let check = |told: &[(&str, &str)], want: Option<&str>| {
            let told = told.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            assert_eq!(id_by_udev(&told).as_deref(), want, "{told:?}");
        };
        check(&[], None);
        check(&[("ID_MODEL", "M")], None);
        check(&[("ID_VENDOR", "V"), ("ID_MODEL", "M"), ("ID_SCSI_SERIAL", "S")], Some("V_M_S"));
        check(&[("ID_VENDOR", "V"), ("ID_MODEL", "M"), ("ID_SERIAL_SHORT", "S")], Some("M_S"));
        check(&[("ID_SERIAL", "V_M_S"), ("ID_MODEL", "M")], Some("V_M_S"));
        check(&[("ID_SERIAL", "MTFDHAL")], Some("Micron_MTFDHAL"));
        let lvm = [("ID_MODEL", "LVM PV x on /dev/sda"), ("ID_SERIAL_SHORT", "S")];
        check(&lvm, None);
        check(&[&lvm[..], &[("ID_MODEL_ENC", "WD\\x20Red\\x20\\x20")]].concat(), Some("WD Red_S"));
    }

    #[test]
    fn disks_are_described_by_udev_or_sysfs_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, host) = (dir.path(), host(dir.path()));
        let sys = root.join("sys/class/block");
        write(sys.join("sda/dev"), "8:0\n");
        write(root.join("udev/b8:0"), "S:x\nE:ID_MODEL=WD 1\nE:ID_SERIAL_SHORT=S=1\nE:ID_VENDOR=ATA\n");
        write(sys.join("nvme0n1/dev"), "259:0\n");
        write(sys.join("nvme0n1/device/model"), "Samsung SSD 970\n");
        write(sys.join("nvme0n1/device/serial"), "S7\n");
        write(sys.join("vda/dev"), "254:0\n");
        write(sys.join("vdb/device/model"), "half\n");
        std::fs::create_dir_all(root.join("dev/disk/by-path")).expect("made");
        let link = root.join("dev/disk/by-path/pci-0000:00:1f.2-ata-1");
        std::os::unix::fs::symlink("../../sda", &link).expect("linked");
        let of = |name: &str| host.disk_named(name.to_owned());
        let sda = of("sda");
        assert_eq!((sda.id.as_deref(), sda.vendor.as_deref()), (Some("WD_1_S=1"), Some("ata")));
        assert_eq!(sda.path, Some(link.display().to_string()));
        let nvme = of("nvme0n1");
        assert_eq!(
            (nvme.id.as_deref(), nvme.vendor.as_deref()),
            (Some("Samsung_SSD_970_S7"), Some("Samsung"))
        );
        assert_eq!(nvme.path, None);
        for unknown in ["vda", "vdb", "none"] {
            assert_eq!(of(unknown).id, None, "{unknown}");
        }
        let told = disk_metadata(&[nvme, sda, of("vda")]);
        assert_eq!(told["devices"], "nvme0n1,sda,vda");
        assert_eq!(told["device_ids"], "nvme0n1=Samsung_SSD_970_S7,sda=WD_1_S=1");
        assert_eq!(told["device_paths"], format!("sda={}", link.display()));
        assert_eq!(disk_metadata(&[]).into_values().collect::<String>(), "");
    }

    #[test]
    fn volumes_are_looked_through_and_parts_belong_to_their_disks() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, host) = (dir.path(), host(dir.path()));
        let sys = root.join("sys/class/block");
        write(root.join("sys/devices/sda/sda1/partition"), "1\n");
        std::fs::create_dir_all(&sys).expect("made");
        std::os::unix::fs::symlink(root.join("sys/devices/sda/sda1"), sys.join("sda1")).expect("linked");
        for (at, below) in [("dm-0", "dm-1"), ("dm-0", "sdb"), ("dm-1", "sda1"), ("dm-2", "dm-2")] {
            std::fs::create_dir_all(sys.join(at).join("slaves").join(below)).expect("made");
        }
        let below = |name: &str| {
            let mut out = BTreeSet::new();
            host.raw_disks(name, MAX_LAYERS, &mut out);
            out.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            (below("dm-0").as_str(), below("sdc").as_str(), below("dm-2").as_str()),
            ("sda sdb", "sdc", "")
        );
        assert_eq!(host.disks_below(&root.join("none")), []);
    }
}
