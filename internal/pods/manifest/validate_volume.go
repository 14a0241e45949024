package manifest

import (
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumes checks all volumes of a pod of this name.
func validateVolumes(podName string, volumes []v1.Volume, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	claims := map[string]bool{} // of ephemeral volumes
	for i := range volumes {
		if volumes[i].Ephemeral != nil {
			claims[podName+"-"+volumes[i].Name] = true
		}
	}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case seen[v.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		default:
			errs = append(errs, invalid(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		seen[v.Name] = true
		errs = append(errs, validateSource(&v.VolumeSource, at)...)
		if v.ISCSI != nil && v.ISCSI.InitiatorName != nil && len(v.Name+":"+v.ISCSI.TargetPortal) > 64 {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name,
				"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "+
					"specified."))
		}
		if v.Ephemeral != nil && podName != "" && v.Name != "" {
			claim := podName + "-" + v.Name
			for _, why := range apivalidation.NameIsDNSSubdomain(claim, false) {
				errs = append(errs, field.Invalid(at.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", claim, why)))
			}
		}
		if c := v.PersistentVolumeClaim; c != nil && podName != "" && claims[c.ClaimName] {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

// validateSource checks the source of a volume. Exactly one has to be set.
func validateSource(v *v1.VolumeSource, at *field.Path) field.ErrorList {
	switch n := setPointers(reflect.ValueOf(*v)); {
	case n == 0:
		return field.ErrorList{field.Required(at, "must specify a volume type")}
	case n > 1:
		return field.ErrorList{field.Forbidden(at, "may not specify more than 1 volume type")}
	}
	for _, kind := range []func(*v1.VolumeSource, *field.Path) field.ErrorList{
		localSource,
		objectSource,
		networkSource,
		cloudSource,
	} {
		if errs := kind(v, at); len(errs) > 0 {
			return errs
		}
	}
	return nil
}

var hostPathTypes = []v1.HostPathType{
	v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile,
	v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev,
}

// localSource checks volume sources on the node.
func localSource(v *v1.VolumeSource, at *field.Path) (errs field.ErrorList) {
	switch {
	case v.HostPath != nil:
		at := at.Child("hostPath")
		if v.HostPath.Path == "" {
			return field.ErrorList{field.Required(at.Child("path"), "")}
		}
		errs = validateNoBacksteps(v.HostPath.Path, at.Child("path"))
		if t := *v.HostPath.Type; !slices.Contains(hostPathTypes, t) {
			errs = append(errs, field.NotSupported(at.Child("type"), t, hostPathTypes[1:]))
		}
	case v.EmptyDir != nil:
		if s := v.EmptyDir.SizeLimit; s != nil && s.Sign() < 0 {
			errs = append(errs,
				field.Forbidden(at.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity"))
		}
	case v.DownwardAPI != nil:
		at := at.Child("downwardAPI")
		errs = validateMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		errs = append(errs, validateItems(v.DownwardAPI.Items, at.Child("items"))...)
	case v.Image != nil:
		// An image volume without a reference is valid, as it is upstream; its pod waits for an
		// image.
		errs = oneOf(v.Image.PullPolicy, at.Child("image", "pullPolicy"), v1.PullAlways, v1.PullIfNotPresent,
			v1.PullNever)
	case v.GitRepo != nil:
		errs = required(at.Child("gitRepo", "repository"), v.GitRepo.Repository)
		errs = append(errs, validateBelow(v.GitRepo.Directory, at.Child("gitRepo", "directory"))...)
	case v.FlexVolume != nil:
		at := at.Child("flexVolume")
		errs = required(at.Child("driver"), v.FlexVolume.Driver)
		for key := range v.FlexVolume.Options {
			domain, _, _ := strings.Cut(key, "/")
			domain = "." + strings.ToLower(domain)
			if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
				errs = append(errs,
					field.Invalid(at.Child("options").Key(key), key,
						"kubernetes.io and k8s.io namespaces are reserved"))
			}
		}
	}
	return errs
}

// objectSource checks volume sources that are objects of the API server.
func objectSource(v *v1.VolumeSource, at *field.Path) (errs field.ErrorList) {
	switch {
	case v.Secret != nil:
		at := at.Child("secret")
		errs = required(at.Child("secretName"), v.Secret.SecretName)
		errs = append(errs, validateMode(v.Secret.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validateKeys(v.Secret.Items, at.Child("items"))...)
	case v.ConfigMap != nil:
		at := at.Child("configMap")
		errs = required(at.Child("name"), v.ConfigMap.Name)
		errs = append(errs, validateMode(v.ConfigMap.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, validateKeys(v.ConfigMap.Items, at.Child("items"))...)
	case v.Projected != nil:
		errs = validateProjected(v.Projected, at.Child("projected"))
	case v.PersistentVolumeClaim != nil:
		errs = required(at.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate == nil:
		errs = field.ErrorList{field.Required(at.Child("ephemeral", "volumeClaimTemplate"), "")}
	case v.Ephemeral != nil:
		errs = validateClaimTemplate(v.Ephemeral.VolumeClaimTemplate, at.Child("ephemeral", "volumeClaimTemplate"))
	case v.CSI != nil:
		at := at.Child("csi")
		errs = validateDriverName(v.CSI.Driver, at.Child("driver"))
		if ref := v.CSI.NodePublishSecretRef; ref != nil && ref.Name == "" {
			errs = append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
		} else if ref != nil {
			errs = append(errs,
				invalid(at.Child("name"), ref.Name, apivalidation.NameIsDNSSubdomain(ref.Name, false))...)
		}
	}
	return errs
}

func validateDriverName(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(name) > 63 {
		errs = append(errs, field.TooLong(at, name, 63))
	}
	return append(errs, invalid(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// networkSource checks volume sources on the network.
func networkSource(v *v1.VolumeSource, at *field.Path) (errs field.ErrorList) {
	switch {
	case v.NFS != nil:
		at := at.Child("nfs")
		errs = append(required(at.Child("server"), v.NFS.Server), required(at.Child("path"), v.NFS.Path)...)
		if !strings.HasPrefix(v.NFS.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), v.NFS.Path, "must be an absolute path"))
		}
	case v.ISCSI != nil:
		errs = validateISCSI(v.ISCSI, at.Child("iscsi"))
	case v.Glusterfs != nil:
		at := at.Child("glusterfs")
		errs = append(required(at.Child("endpoints"),
			v.Glusterfs.EndpointsName), required(at.Child("path"), v.Glusterfs.Path)...)
	case v.RBD != nil:
		at := at.Child("rbd")
		errs = append(required(at.Child("monitors"),
			given(v.RBD.CephMonitors)), required(at.Child("image"), v.RBD.RBDImage)...)
	case v.CephFS != nil:
		errs = required(at.Child("cephfs", "monitors"), given(v.CephFS.Monitors))
	case v.Quobyte != nil:
		errs = validateQuobyte(v.Quobyte, at.Child("quobyte"))
	case v.Flocker != nil:
		at, f := at.Child("flocker"), v.Flocker
		switch {
		case f.DatasetName == "" && f.DatasetUUID == "":
			errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
		case f.DatasetName != "" && f.DatasetUUID != "":
			errs = append(errs,
				field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
		}
		if strings.Contains(f.DatasetName, "/") {
			errs = append(errs, field.Invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'"))
		}
	case v.FC != nil:
		errs = validateFC(v.FC, at.Child("fc"))
	case v.StorageOS != nil:
		at, s := at.Child("storageos"), v.StorageOS
		errs = required(at.Child("volumeName"), s.VolumeName)
		if s.VolumeName != "" {
			errs = append(errs,
				invalid(at.Child("volumeName"), s.VolumeName, validation.IsDNS1123Label(s.VolumeName))...)
		}
		if s.VolumeNamespace != "" {
			errs = append(errs, invalid(at.Child("volumeNamespace"), s.VolumeNamespace,
				validation.IsDNS1123Label(s.VolumeNamespace))...)
		}
		if s.SecretRef != nil {
			errs = append(errs, required(at.Child("secretRef", "name"), s.SecretRef.Name)...)
		}
	case v.ScaleIO != nil:
		at, s := at.Child("scaleIO"), v.ScaleIO
		errs = append(required(at.Child("gateway"), s.Gateway), required(at.Child("system"), s.System)...)
		errs = append(errs, required(at.Child("volumeName"), s.VolumeName)...)
	}
	return errs
}

// given returns a text that is empty only for an empty list.
func given(list []string) string {
	return strings.Repeat("x", len(list))
}

var (
	iqnName = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	euiName = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	naaName = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

// validateISCSIName checks the name of a target or an initiator.
func validateISCSIName(name string, at *field.Path) field.ErrorList {
	for prefix, format := range map[string]*regexp.Regexp{"iqn": iqnName, "eui": euiName, "naa": naaName} {
		switch {
		case !strings.HasPrefix(name, prefix):
		case !format.MatchString(name):
			return field.ErrorList{field.Invalid(at, name, "must be valid format")}
		default:
			return nil
		}
	}
	return field.ErrorList{field.Invalid(at, name, "must be valid format starting with iqn, eui, or naa")}
}

func validateISCSI(i *v1.ISCSIVolumeSource, at *field.Path) field.ErrorList {
	errs := append(required(at.Child("targetPortal"), i.TargetPortal), required(at.Child("iqn"), i.IQN)...)
	if i.IQN != "" {
		errs = append(errs, validateISCSIName(i.IQN, at.Child("iqn"))...)
	}
	if i.Lun < 0 || i.Lun > 255 {
		errs = append(errs, field.Invalid(at.Child("lun"), i.Lun, validation.InclusiveRangeError(0, 255)))
	}
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	}
	if i.InitiatorName != nil {
		errs = append(errs, validateISCSIName(*i.InitiatorName, at.Child("initiatorname"))...)
	}
	return errs
}

func validateQuobyte(q *v1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at.Child("volume"), q.Volume)
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case q.Registry == "":
		return append(errs, field.Required(at.Child("registry"), pairs))
	case len(q.Tenant) > 64:
		return append(errs,
			field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	}
	for pair := range strings.SplitSeq(q.Registry, ",") {
		if _, _, err := net.SplitHostPort(pair); err != nil {
			errs = append(errs, field.Invalid(at.Child("registry"), q.Registry, pairs))
		}
	}
	return errs
}

func validateFC(fc *v1.FCVolumeSource, at *field.Path) (errs field.ErrorList) {
	switch {
	case len(fc.TargetWWNs) == 0 && len(fc.WWIDs) == 0:
		errs = append(errs,
			field.Required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both"))
	case len(fc.TargetWWNs) > 0 && len(fc.WWIDs) > 0:
		errs = append(errs,
			field.Invalid(at.Child("targetWWNs"), fc.TargetWWNs,
				"targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case len(fc.TargetWWNs) == 0:
	case fc.Lun == nil:
		errs = append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	case *fc.Lun < 0 || *fc.Lun > 255:
		errs = append(errs, field.Invalid(at.Child("lun"), *fc.Lun, validation.InclusiveRangeError(0, 255)))
	}
	return errs
}

// cloudSource checks volume sources that are disks of a cloud.
func cloudSource(v *v1.VolumeSource, at *field.Path) (errs field.ErrorList) {
	partition := func(n int32, at *field.Path) {
		if n < 0 || n > 255 {
			errs = append(errs, field.Invalid(at.Child("partition"), n, validation.InclusiveRangeError(1, 255)))
		}
	}
	switch {
	case v.GCEPersistentDisk != nil:
		at := at.Child("persistentDisk")
		errs = required(at.Child("pdName"), v.GCEPersistentDisk.PDName)
		partition(v.GCEPersistentDisk.Partition, at)
	case v.AWSElasticBlockStore != nil:
		at := at.Child("awsElasticBlockStore")
		errs = required(at.Child("volumeID"), v.AWSElasticBlockStore.VolumeID)
		partition(v.AWSElasticBlockStore.Partition, at)
	case v.Cinder != nil:
		errs = required(at.Child("cinder", "volumeID"), v.Cinder.VolumeID)
		if v.Cinder.SecretRef != nil {
			errs = append(errs, required(at.Child("cinder", "secretRef", "name"), v.Cinder.SecretRef.Name)...)
		}
	case v.AzureFile != nil:
		at := at.Child("azureFile")
		errs = append(required(at.Child("secretName"),
			v.AzureFile.SecretName), required(at.Child("shareName"), v.AzureFile.ShareName)...)
	case v.AzureDisk != nil:
		errs = validateAzureDisk(v.AzureDisk, at.Child("azureDisk"))
	case v.VsphereVolume != nil:
		errs = required(at.Child("vsphereVolume", "volumePath"), v.VsphereVolume.VolumePath)
	case v.PhotonPersistentDisk != nil:
		errs = required(at.Child("photonPersistentDisk", "pdID"), v.PhotonPersistentDisk.PdID)
	case v.PortworxVolume != nil:
		errs = required(at.Child("portworxVolume", "volumeID"), v.PortworxVolume.VolumeID)
	}
	return errs
}

func validateAzureDisk(d *v1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := append(required(at.Child("diskName"), d.DiskName), required(at.Child("diskURI"), d.DataDiskURI)...)
	modes := []v1.AzureDataDiskCachingMode{
		v1.AzureDataDiskCachingNone,
		v1.AzureDataDiskCachingReadOnly,
		v1.AzureDataDiskCachingReadWrite,
	}
	if !slices.Contains(modes, *d.CachingMode) {
		errs = append(errs, field.NotSupported(at.Child("cachingMode"), *d.CachingMode, modes))
	}
	kinds := []v1.AzureDataDiskKind{v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk, v1.AzureManagedDisk}
	if !slices.Contains(kinds, *d.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), *d.Kind, kinds))
	}
	begin, like := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *d.Kind == v1.AzureManagedDisk {
		begin = "/subscriptions/"
		like = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(d.DataDiskURI, begin) {
		errs = append(errs, field.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{like}))
	}
	return errs
}

// validateKeys checks which keys of an object become which files.
func validateKeys(items []v1.KeyToPath, at *field.Path) (errs field.ErrorList) {
	for i, item := range items {
		at := at.Index(i)
		errs = append(errs, required(at.Child("key"), item.Key)...)
		errs = append(errs, validateRelative(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
	}
	return errs
}

// volumeFields are the pod's fields that a file of a downward API volume may have.
var volumeFields = []string{
	"metadata.annotations",
	"metadata.labels",
	"metadata.name",
	"metadata.namespace",
	"metadata.uid",
}

func validateItems(items []v1.DownwardAPIVolumeFile, at *field.Path) (errs field.ErrorList) {
	for i, item := range items {
		at := at.Index(i)
		errs = append(errs, validateRelative(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs,
				field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, validateFieldRef(item.FieldRef, volumeFields, at.Child("fieldRef"))...)
		case item.ResourceFieldRef != nil:
			errs = append(errs, validateResourceRef(item.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
	}
	return errs
}

// validateRelative checks the path of a file in a volume.
func validateRelative(p string, at *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateBelow(p, at)
	if strings.HasPrefix(p, "..") && len(errs) == 0 {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// setPointers counts the fields of a struct of pointers that are set.
func setPointers(v reflect.Value) int {
	n := 0
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}
