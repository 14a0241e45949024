package manifest

import (
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// TestManifestsRefusedByUpstream has one manifest for each kind of mistake that
// went unnoticed until manifests were compared with upstream's kubelet by the
// thousand (test/differ/inputs). The errors are upstream's.
func TestManifestsRefusedByUpstream(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-67")
	for _, tc := range []struct{ name, meta, spec, container, want string }{
		{name: "a UID that is a path", meta: "uid: ../../etc", want: "metadata.uid: Invalid value"},
		{name: "a UID of two dots", meta: "uid: ..", want: "metadata.uid: Invalid value"},
		{
			name: "a finalizer without a domain",
			meta: "finalizers: [mine]",
			want: "name is neither a standard finalizer name nor is it fully qualified",
		},
		{
			name: "an owner without a kind",
			meta: "ownerReferences: [{apiVersion: v1, name: x, uid: u}]",
			want: "metadata.ownerReferences.kind: Invalid value",
		},
		{
			name: "an AppArmor annotation that is invalid",
			meta: "annotations: {container.apparmor.security.beta.kubernetes.io/main: enforce}",
			want: `invalid AppArmor profile name: "enforce"`,
		},
		{
			name: "an AppArmor annotation of no container",
			meta: "annotations: {container.apparmor.security.beta.kubernetes.io/x: unconfined}",
			want: "container not found",
		},
		{
			name: "an AppArmor annotation that the field contradicts",
			meta: "annotations: {container.apparmor.security.beta.kubernetes.io/main: unconfined}",
			spec: "securityContext: {appArmorProfile: {type: RuntimeDefault}}",
			want: "spec.containers[0].securityContext.appArmorProfile: Forbidden: apparmor type in annotation and field " +
				"must match",
		},
		{
			name:      "an AppArmor profile without a type",
			container: "securityContext: {appArmorProfile: {}}",
			want:      "appArmorProfile.type: Required value",
		},
		{
			name:      "an AppArmor profile without a name",
			container: "securityContext: {appArmorProfile: {type: Localhost}}",
			want:      "must be set when AppArmor type is Localhost",
		},
		{
			name: "a seccomp annotation that is invalid",
			meta: "annotations: {seccomp.security.alpha.kubernetes.io/pod: odd}",
			want: "must be a valid seccomp profile",
		},
		{
			name:      "envFrom of nothing",
			container: "envFrom: [{prefix: A}]",
			want:      "must specify one of: `configMapRef` or `secretRef`",
		},
		{
			name:      "envFrom of an object without a name",
			container: "envFrom: [{secretRef: {}}]",
			want:      "spec.containers[0].envFrom[0].secretRef.name: Required value",
		},
		{
			name:      "a resize of no resource",
			container: "resizePolicy: [{resourceName: pods, restartPolicy: NotRequired}]",
			want:      `Unsupported value: "pods"`,
		},
		{
			name:      "a resize that restarts what never restarts",
			spec:      "restartPolicy: Never",
			container: "resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]",
			want:      "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
		},
		{
			name: "a hostnameOverride on the host's network",
			spec: "hostnameOverride: a\n  hostNetwork: true",
			want: "may not be specified when hostNetwork is true",
		},
		{
			name: "a hostnameOverride that is no DNS name",
			spec: "hostnameOverride: a_b",
			want: "spec.hostnameOverride: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of",
		},
		{
			name: "a hostnameOverride that is empty",
			spec: "hostnameOverride: ''",
			want: "spec.hostnameOverride: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of",
		},
		{
			name: "a hostnameOverride that is too long",
			spec: "hostnameOverride: " + strings.Repeat("a", 65),
			want: "spec.hostnameOverride: Too long",
		},
		{
			name:      "a signal without an operating system",
			container: "lifecycle: {stopSignal: SIGTERM}",
			want:      "may not be set for containers with empty `spec.os.name`",
		},
		{
			name:      "an unmasked /proc among the host's users",
			container: "securityContext: {procMount: Unmasked}",
			want:      "`hostUsers` must be false to use `Unmasked`",
		},
		{
			name: "a sysctl of the host's network",
			spec: "hostNetwork: true\n  securityContext: {sysctls: [{name: net.a, value: b}]}",
			want: "may not be specified when 'hostNetwork' is true",
		},
		{
			name: "a Windows option on Linux",
			spec: "os: {name: linux}\n  securityContext: {windowsOptions: {runAsUserName: a}}",
			want: "windows options cannot be set for a linux pod",
		},
		{
			name: "an address that is read in two ways",
			spec: "hostAliases: [{ip: 010.0.0.1}]",
			want: "must not have leading 0s",
		},
		{
			name: "a search that is no name",
			spec: "dnsConfig: {searches: [-a]}",
			want: "spec.dnsConfig.searches[0]: Invalid value",
		},
		{
			name: "an affinity to nothing",
			spec: "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
			want: "must have at least one node selector term",
		},
		{
			name: "a spread without a skew",
			spec: "topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
			want: "maxSkew: Invalid value: 0: must be greater than zero",
		},
		{name: "half of a device", container: "resources: {limits: {a.b/c: 500m}}", want: "must be an integer"},
		{
			name:      "huge pages without memory",
			container: "resources: {limits: {hugepages-2Mi: 2Mi}}",
			want:      "HugePages require cpu or memory",
		},
		{
			name:      "half of a huge page",
			container: "resources: {limits: {memory: 4Mi, hugepages-2Mi: 3Mi}}",
			want:      "3Mi is not positive integer multiple of hugepages-2Mi",
		},
		{
			name: "two volumes in one place",
			spec: "volumes: [{name: a, projected: {sources: [{downwardAPI: {items: [{path: x, fieldRef: {fieldPath: " +
				"metadata.name}}, {path: x, fieldRef: {fieldPath: metadata.uid}}]}}]}}]",
			want: "conflicting duplicate paths",
		},
		{
			name:      "a device of a directory",
			spec:      "volumes: [{name: a, emptyDir: {}}]",
			container: "volumeDevices: [{name: a, devicePath: /dev/x}]",
			want:      "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
		},
		{name: "a name without a pod", meta: "generateName: a-\n  name: ''", want: "name is needed for the pod"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  " + tc.meta + "\nspec:\n  " + tc.spec +
				"\n  containers:\n  - name: main\n    image: x\n    " + tc.container + "\n"
			if strings.Contains(tc.meta, "name: ''") {
				text = strings.Replace(text, "  name: a\n", "", 1)
			}
			_, _, err := Compiler{NodeName: "node1", AllowAPIReferences: true}.File("/m/a.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// TestVolumeSourcesRefusedByUpstream has one mistake for each kind of volume.
func TestVolumeSourcesRefusedByUpstream(t *testing.T) {
	for source, want := range map[string]string{
		"gcePersistentDisk: {partition: 1}":                    "persistentDisk.pdName: Required value",
		"awsElasticBlockStore: {volumeID: a, partition: 256}":  "must be between 1 and 255, inclusive",
		"gitRepo: {repository: a, directory: ../b}":            "must not contain '..'",
		"secret: {items: [{key: a, path: /b}], secretName: s}": "must be a relative path",
		"nfs: {server: a, path: b}":                            "must be an absolute path",
		"iscsi: {targetPortal: a, iqn: b, lun: 0}": "must be valid format starting with " +
			"iqn, eui, or naa",
		"iscsi: {targetPortal: a, iqn: 'iqn.2001-04.a:b', lun: 256}": "must be between 0 and 255, inclusive",
		"glusterfs: {path: a}": "glusterfs.endpoints: Required value",
		"persistentVolumeClaim: {}": "persistentVolumeClaim.claimName: " +
			"Required value",
		"rbd: {image: a, monitors: []}": "rbd.monitors: Required value",
		"flexVolume: {driver: a, options: {kubernetes.io/x: z}}": "kubernetes.io and k8s.io namespaces " +
			"are reserved",
		"cinder: {volumeID: a, secretRef: {}}": "cinder.secretRef.name: Required value",
		"cephfs: {monitors: []}":               "cephfs.monitors: Required value",
		"flocker: {}": "one of datasetName and datasetUUID " +
			"is required",
		"fc: {targetWWNs: [a]}":                                     "lun is required if targetWWNs is specified",
		"azureFile: {secretName: a}":                                "azureFile.shareName: Required value",
		"configMap: {items: [{key: a, path: ..b}], name: c}":        "must not start with '..'",
		"vsphereVolume: {}":                                         "vsphereVolume.volumePath: Required value",
		"quobyte: {registry: a, volume: b}":                         "must be a host:port pair",
		"azureDisk: {diskName: a, diskURI: b}":                      "azureDisk.diskURI: Unsupported value",
		"azureDisk: {diskName: a, diskURI: 'https://x', kind: Odd}": "azureDisk.kind: Unsupported value",
		"photonPersistentDisk: {}":                                  "photonPersistentDisk.pdID: Required value",
		"portworxVolume: {}":                                        "portworxVolume.volumeID: Required value",
		"scaleIO: {gateway: a, system: b, secretRef: {name: s}}":    "scaleIO.volumeName: Required value",
		"storageos: {volumeName: A}":                                "a lowercase RFC 1123 label",
		"csi: {driver: a, nodePublishSecretRef: {}}": "csi.nodePublishSecretRef.name: " +
			"Required value",
		"ephemeral: {}": "ephemeral.volumeClaimTemplate: " +
			"Required value",
		"ephemeral: {volumeClaimTemplate: {spec: {accessModes: [Odd]}}}": "accessModes: Unsupported value",
		"projected: {sources: [{secret: {items: []}}]}": "projected.sources[0].secret.name: " +
			"Required value",
		"projected: {sources: [{serviceAccountToken: {path: a}}]}": "must not be specified when " +
			"serviceAccountName is not set",
		"projected: {sources: [{podCertificate: {signerName: a, keyType: b}}]}": "must be a fully qualified domain " +
			"and path of the form",
		"projected: {sources: [{clusterTrustBundle: {path: a}}]}": "either name or signerName must be " +
			"specified",
		"image: {reference: a, pullPolicy: Odd}": "image.pullPolicy: Unsupported value",
		"downwardAPI: {items: [{path: a, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 3}}]}": "divisor: Unsupported value",
	} {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: [{name: main, image: x}]\n  " +
			"volumes:\n  - name: v\n    " + source + "\n"
		_, _, err := Compiler{NodeName: "node1", AllowAPIReferences: true}.File("/m/a.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", source, err, want)
		}
	}
}

// TestSELinuxChangePolicy: the policy MountOption depends on the gate SELinuxMount.
func TestSELinuxChangePolicy(t *testing.T) {
	text := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  securityContext: " +
		"{seLinuxChangePolicy: MountOption}\n  containers: [{name: main, image: x}]\n")
	if _, _, err := (Compiler{NodeName: "node1"}).File("/m/a.yaml", text); err == nil ||
		!strings.Contains(err.Error(), `seLinuxChangePolicy: Unsupported value: "MountOption"`) {
		t.Errorf("without the gate: %v", err)
	}
	if _, _, err := (Compiler{NodeName: "node1", MountSELinux: true}).File("/m/a.yaml", text); err != nil {
		t.Errorf("with the gate: %v", err)
	}
}
