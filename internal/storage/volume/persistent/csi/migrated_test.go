package csi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// register registers the driver under the name of a cloud's driver too, whose volumes are not
// attached.
func (n *testNode) register(name string) {
	n.t.Helper()
	must(n.t, n.drivers.Register(n.t.Context(), name, n.driver.Socket(), []string{"1.0.0"}))
	no := false
	n.api.change(
		func() { n.api.drivers[name] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}} },
	)
}

// In-tree volumes of cloud providers are served by the CSI driver that replaces the in-tree plugin.
// Those without such a driver are rejected.
func TestMigratedCloudVolumes(t *testing.T) {
	parity.Proves(t, "VOL-57")
	parity.Differs(t, "VOL-56", "0078")
	parity.ProvesPart(t, 2, "PLUG-19")
	n := newTestNode(t, nil)
	n.stop()
	var mu sync.Mutex
	counted := map[string]int{}
	n.observe = func(driver, method, code string, migrated bool, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		counted[fmt.Sprint(driver, " ", method, " ", code, " ", migrated)]++
	}
	n.start()
	n.api.secrets["default/acc-secret"], n.api.secrets["ns/acc-secret"] = &v1.Secret{}, &v1.Secret{}
	plugins := map[string]bool{}
	for _, c := range []struct {
		plugin, driver, handle string
		pv                     v1.PersistentVolumeSource
		inline                 v1.VolumeSource // of the same
		inlineHandle, name     string          // if different from handle and driver-handle
	}{
		{
			plugin: "aws-ebs",
			driver: "ebs.csi.aws.com",
			handle: "vol-02399794d890f9375",
			pv: v1.PersistentVolumeSource{
				AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{
					VolumeID: "aws://us-east-1a/vol-02399794d890f9375",
					FSType:   "ext4",
				},
			},
			inline: v1.VolumeSource{
				AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{
					VolumeID: "vol-02399794d890f9375",
					FSType:   "ext4",
				},
			},
		},
		{
			plugin: "gce-pd",
			driver: "pd.csi.storage.gke.io",
			handle: "projects~UNSPECIFIED~zones~UNSPECIFIED~disks~disk-1",
			pv:     v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk-1"}},
			inline: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk-1"}},
			name:   "pd.csi.storage.gke.io-disk-1",
		},
		{
			plugin: "azure-disk",
			driver: "disk.csi.azure.com",
			handle: "uri-of-disk",
			pv: v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{
				DiskName:    "d",
				DataDiskURI: "uri-of-disk",
			}},
			inline: v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "uri-of-disk"}},
			name:   "uri-of-disk",
		},
		{
			plugin: "azure-file",
			driver: "file.csi.azure.com",
			handle: "#acc-secret#share#pv-azure-file#ns",
			pv: v1.PersistentVolumeSource{
				AzureFile: &v1.AzureFilePersistentVolumeSource{SecretName: "acc-secret", ShareName: "share"},
			},
			inline: v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{
				SecretName: "acc-secret",
				ShareName:  "share",
			}},
			inlineHandle: "#acc-secret#share#inline#ns",
			name:         "#acc-secret#share#inline#ns",
		},
		{
			plugin: "cinder",
			driver: "cinder.csi.openstack.org",
			handle: "cinder-1",
			pv:     v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "cinder-1"}},
			inline: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "cinder-1"}},
		},
		{
			plugin: "vsphere-volume",
			driver: "csi.vsphere.vmware.com",
			handle: "[store] a.vmdk",
			pv:     v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] a.vmdk"}},
			inline: v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] a.vmdk"}},
		},
		{
			plugin: "portworx-volume",
			driver: "pxd.portworx.com",
			handle: "px-1",
			pv:     v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "px-1"}},
			inline: v1.VolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "px-1"}},
		},
	} {
		t.Run(c.plugin, func(t *testing.T) {
			plugins["kubernetes.io/"+c.plugin] = true
			n.register(c.driver)
			n.volumeOf(c.plugin, func(pv *v1.PersistentVolume) { pv.Spec.PersistentVolumeSource = c.pv })
			inlineHandle, name := c.handle, c.driver+"-"+c.handle
			if c.inlineHandle != "" {
				inlineHandle = c.inlineHandle
			}
			if c.name != "" {
				name = c.name
			}
			inline := podWith("inline-" + c.plugin)
			inline.Spec.Volumes = []v1.Volume{{Name: "inline", VolumeSource: c.inline}}
			inline.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "inline", MountPath: "/v"}}
			for _, one := range []struct {
				pod               *v1.Pod
				vol, handle, name string
			}{
				{podWith("claim-"+c.plugin, c.plugin), "v-" + c.plugin, c.handle, "pv-" + c.plugin},
				{inline, "inline", inlineHandle, name},
			} {
				must(t, os.MkdirAll(n.driver.Data(one.handle), 0o777))
				n.ready(one.pod)
				if got, want := n.mounted(one.pod)[one.vol], filepath.Join(n.root, "pods", string(one.pod.UID),
					"volumes/kubernetes.io~csi", one.name, "mount"); got != want {
					t.Errorf("mounted from %s, want %s", got, want)
				}
				asked := n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest).VolumeId
				if got := strings.ReplaceAll(asked, "/", "~"); got != one.handle {
					t.Errorf("the driver was called for %s, want %s", got, one.handle)
				}
				if r, err := readRecord(filepath.Join(n.root, "pods", string(one.pod.UID), "volumes/kubernetes.io~csi",
					one.name)); err != nil || r.Driver != c.driver {
					t.Errorf("the record is %+v, %v", r, err)
				}
				n.release(one.pod)
				n.idle()
			}
			mu.Lock()
			for call, want := range map[string]int{
				"NodeStageVolume OK true":      2,
				"NodePublishVolume OK true":    2,
				"NodeUnpublishVolume OK false": 2,
				"NodeUnstageVolume OK false":   2,
			} {
				if got := counted[c.driver+" "+call]; got != want {
					t.Errorf("%s is counted %d times, want %d: %v", call, got, want, counted)
				}
			}
			mu.Unlock()
			measured := scrape.Of(t, n.Manager)
			for _, operation := range []string{"volume_mount", "verify_controller_attached_volume"} {
				name := "storage_operation_duration_seconds{migrated=true,operation_name=" + operation +
					",status=success,volume_plugin=kubernetes.io/csi:" + c.driver + "}"
				if measured[name] != 2 {
					t.Errorf("%s is %v, want 2", name, measured[name])
				}
			}
		})
	}
	for _, name := range strings.Split(migrated, ",") {
		if !plugins[name] {
			t.Errorf("the CSINode lists %s as migrated, and it is not", name)
		}
	}

	for name, src := range map[string]v1.VolumeSource{
		"flex": {
			FlexVolume: &v1.FlexVolumeSource{Driver: "example.com/x"},
		}, "glusterfs": {Glusterfs: &v1.GlusterfsVolumeSource{}},
		"rbd": {
			RBD: &v1.RBDVolumeSource{},
		}, "cephfs": {CephFS: &v1.CephFSVolumeSource{}}, "quobyte": {Quobyte: &v1.QuobyteVolumeSource{}},
		"flocker": {
			Flocker: &v1.FlockerVolumeSource{},
		}, "scaleio": {ScaleIO: &v1.ScaleIOVolumeSource{}}, "storageos": {StorageOS: &v1.StorageOSVolumeSource{}},
		"photon": {PhotonPersistentDisk: &v1.PhotonPersistentDiskVolumeSource{}},
	} {
		p := podWith("other-" + name)
		p.Spec.Volumes = []v1.Volume{{Name: name, VolumeSource: src}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: name, MountPath: "/v"}}
		n.Want(p)
		n.until("an event about "+name, func() bool {
			return n.events.Has("Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[" + name +
				"], unattached volumes=[], failed to process volumes=[" + name + "]: " +
				`failed to get Plugin from volumeSpec for volume "` + name + `" err=no volume plugin matched`)
		})
		n.release(p)
	}
	n.volumeOf("flex", func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
			FlexVolume: &v1.FlexPersistentVolumeSource{Driver: "example.com/x"},
		}
	})
	p := podWith("claim-flex", "flex")
	n.Want(p)
	n.until("an event of the claim", func() bool {
		return n.events.Has(
			`failed to process volumes=[v-flex]: failed to get Plugin from volumeSpec for volume "pv-flex" err=no volume ` +
				`plugin matched`,
		)
	})
	n.release(p)
	n.idle()
}

// The pod's name of an inline cloud volume becomes a directory name and must be escaped.
func TestMigratedVolumeNamesAreEscaped(t *testing.T) {
	n := newTestNode(t, nil)
	n.register("file.csi.azure.com")
	n.api.secrets["ns/s"] = &v1.Secret{}
	p := podWith("a")
	p.Spec.Volumes = []v1.Volume{
		{
			Name: "v",
			VolumeSource: v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{
				SecretName: "s",
				ShareName:  "x/../../escaped",
			}},
		},
	}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	must(t, os.MkdirAll(n.driver.Data("#s#x/../../escaped#v#ns"), 0o777))
	n.ready(p)
	got, err := filepath.Rel(filepath.Join(n.root, "pods/uid-a/volumes/kubernetes.io~csi"), n.mounted(p)["v"])
	if err != nil || got != "#s#x~..~..~escaped#v#ns/mount" {
		t.Errorf("mounted at %s, %v", got, err)
	}
	n.release(p)
	n.idle()
	for _, name := range []string{"..", "."} {
		p := podWith("b")
		p.Spec.Volumes = []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: name}}},
		}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		n.Want(p)
		n.until("a refusal", func() bool { return n.events.Has(`name "` + name + `" is invalid`) })
		n.release(p)
	}
}
