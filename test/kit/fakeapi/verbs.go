package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

func (s *Server) get(r *request) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked(r.res, r.namespace, r.name)
}

func (s *Server) list(w http.ResponseWriter, r *request) error {
	sel, err := selectorOf(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	items, version := s.selectLocked(sel), s.version
	s.mu.Unlock()
	list := newObject(r.res.list())
	if items == nil {
		items = []runtime.Object{}
	}
	if err := meta.SetList(list, items); err != nil {
		return apierrors.NewInternalError(err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	m.SetResourceVersion(strconv.FormatUint(version, 10))
	return write(w, r.Request, http.StatusOK, list)
}

func (s *Server) create(r *request) (runtime.Object, error) {
	obj, err := decode(r, r.res.gvk)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createLocked(r.res, r.namespace, obj)
}

func (s *Server) createLocked(res *resource, namespace string, obj runtime.Object) (runtime.Object, error) {
	m := accessor(obj)
	if m.GetNamespace() == "" {
		m.SetNamespace(namespace)
	}
	if m.GetNamespace() != namespace {
		return nil,
			apierrors.NewBadRequest(
				"the namespace of the provided object does not match the namespace sent on the request")
	}
	if res.namespaced {
		if _, ok := s.objects[namespaceGVR][key("", namespace)]; !ok {
			return nil, apierrors.NewNotFound(namespaceGVR.GroupResource(), namespace)
		}
	}
	if m.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if m.GetName() == "" {
		if m.GetGenerateName() == "" {
			return nil, apierrors.NewInvalid(res.gvk.GroupKind(), "", field.ErrorList{
				field.Required(field.NewPath("metadata", "name"), "name or generateName is required"),
			})
		}
		s.serial++
		m.SetName(fmt.Sprintf("%s%05d", m.GetGenerateName(), s.serial))
	}
	if _, exists := s.objects[res.gvr()][key(namespace, m.GetName())]; exists {
		return nil, apierrors.NewAlreadyExists(res.gvr().GroupResource(), m.GetName())
	}
	m.SetUID(s.newUIDLocked())
	m.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
	if res.generation {
		m.SetGeneration(1)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		admitPod(o)
	case *corev1.Secret:
		for k, v := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[k] = []byte(v)
		}
		o.StringData = nil
		if o.Type == "" {
			o.Type = corev1.SecretTypeOpaque
		}
	case *corev1.Service:
		defaultService(o)
	}
	s.putLocked(res, nil, obj)
	return obj, nil
}

func (s *Server) update(r *request) (runtime.Object, error) {
	next, err := decode(r, r.res.gvk)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.findLocked(r.res, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	return s.replaceLocked(r, have, next)
}

func (s *Server) patch(r *request) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.findLocked(r.res, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	text, err := toJSON(have)
	if err != nil {
		return nil, err
	}
	var patched []byte
	switch kind := types.PatchType(r.Header.Get("Content-Type")); kind {
	case types.MergePatchType:
		patched, err = jsonpatch.MergePatch(text, r.body)
	case types.StrategicMergePatchType:
		patched, err = strategicpatch.StrategicMergePatch(text, r.body, newObject(r.res.gvk))
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(r.body); err == nil {
			patched, err = p.Apply(text)
		}
	default:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf(
				"the body of the request was in an unknown format - accepted media types include: %s, %s, %s",
				types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType),
		}}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("apply patch: %v", err))
	}
	next := newObject(r.res.gvk)
	if err := json.Unmarshal(patched, next); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("apply patch: %v", err))
	}
	return s.replaceLocked(r, have, next)
}

// replaceLocked stores the object that results from an update or a patch. It changes only
// what the subresource covers.
func (s *Server) replaceLocked(r *request, have, next runtime.Object) (runtime.Object, error) {
	old, m := accessor(have), accessor(next)
	conflict := func(cause error) error {
		return apierrors.NewConflict(r.res.gvr().GroupResource(), r.name, cause)
	}
	switch {
	case m.GetName() != r.name || m.GetNamespace() != r.namespace:
		return nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	case m.GetUID() != "" && m.GetUID() != old.GetUID() && r.Method == http.MethodPut:
		return nil, conflict(precondition("UID", string(m.GetUID()), string(old.GetUID())))
	case m.GetResourceVersion() != "" && m.GetResourceVersion() != old.GetResourceVersion():
		return nil,
			conflict(
				fmt.Errorf(
					"the object has been modified; please apply your changes to the latest version and try again"))
	case m.GetUID() != "" && m.GetUID() != old.GetUID(): // a UID is no precondition of a patch
		return nil, apierrors.NewInvalid(r.res.gvk.GroupKind(), r.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), m.GetUID(), "field is immutable"),
		})
	}
	keep := ""
	switch {
	case r.sub == "" && r.res.status:
		keep = "status"
	case r.sub == "status" && r.res.status:
		keep = "spec"
	case r.sub == "approval" && r.res.name == "certificatesigningrequests":
		keep = "spec"
	case r.res.name == "pods" && (r.sub == "resize" || r.sub == "ephemeralcontainers"):
		keep = "status"
	case r.sub != "":
		return nil, notFoundPath(r.Request)
	}
	if keep != "" {
		var err error
		if next, err = keepField(r.res, have, next, keep); err != nil {
			return nil, err
		}
		m = accessor(next)
	}
	m.SetUID(old.GetUID())
	m.SetCreationTimestamp(old.GetCreationTimestamp())
	m.SetDeletionTimestamp(old.GetDeletionTimestamp())
	m.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	m.SetGeneration(old.GetGeneration())
	if r.sub == "status" {
		m.SetOwnerReferences(old.GetOwnerReferences())
		m.SetFinalizers(old.GetFinalizers())
	}
	if pod, ok := next.(*corev1.Pod); ok {
		was := have.(*corev1.Pod)
		if pod.Spec.NodeName != was.Spec.NodeName {
			return nil, apierrors.NewInvalid(r.res.gvk.GroupKind(), r.name, field.ErrorList{
				field.Forbidden(field.NewPath("spec"), "pod updates may not change the node"),
			})
		}
		if r.sub == "status" {
			if name := backFromTheDead(was, pod); name != "" {
				return nil, apierrors.NewInvalid(r.res.gvk.GroupKind(), r.name, field.ErrorList{
					field.Forbidden(field.NewPath("status", "containerStatuses").Key(name).Child("state"),
						"may not be transitioned to non-terminated state"),
				})
			}
		}
		if !equality.Semantic.DeepEqual(pod.Spec, was.Spec) {
			m.SetGeneration(old.GetGeneration() + 1)
		}
	}
	m.SetResourceVersion(old.GetResourceVersion())
	next.GetObjectKind().SetGroupVersionKind(r.res.gvk)
	if equality.Semantic.DeepEqual(have, next) {
		return have, nil // nothing is written, no watch is notified
	}
	if m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 && graceOver(m) {
		return s.dropLocked(r.res, next), nil
	}
	s.putLocked(r.res, have, next)
	return next, nil
}

// keepField returns next with the value that a top-level field has in have.
func keepField(r *resource, have, next runtime.Object, name string) (runtime.Object, error) {
	var from, to map[string]json.RawMessage
	for obj, into := range map[runtime.Object]*map[string]json.RawMessage{have: &from, next: &to} {
		text, err := toJSON(obj)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	delete(to, name)
	if v, ok := from[name]; ok {
		to[name] = v
	}
	text, err := json.Marshal(to)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out := newObject(r.gvk)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out, nil
}

func (s *Server) remove(r *request) (runtime.Object, error) {
	opts, err := deleteOptions(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.findLocked(r.res, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	return s.deleteLocked(r.res, have, opts)
}

// removeAll deletes the objects that the request selects.
func (s *Server) removeAll(r *request) error {
	opts, err := deleteOptions(r)
	if err != nil {
		return err
	}
	sel, err := selectorOf(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.selectLocked(sel) {
		if _, err := s.deleteLocked(r.res, have, opts); err != nil {
			return err
		}
	}
	return nil
}

func deleteOptions(r *request) (metav1.DeleteOptions, error) {
	var opts metav1.DeleteOptions
	if len(r.body) > 0 {
		kind := r.res.gvk.GroupVersion().WithKind("DeleteOptions")
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.body, &kind, nil)
		if err != nil {
			return opts, apierrors.NewBadRequest(fmt.Sprintf("decode body: %v", err))
		}
		given, ok := obj.(*metav1.DeleteOptions)
		if !ok {
			return opts, apierrors.NewBadRequest(fmt.Sprintf("the body is a %T, want DeleteOptions", obj))
		}
		opts = *given
	}
	if text := r.URL.Query().Get("gracePeriodSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return opts, apierrors.NewBadRequest(fmt.Sprintf("invalid gracePeriodSeconds %q", text))
		}
		opts.GracePeriodSeconds = &n
	}
	return opts, nil
}

func (s *Server) deleteLocked(res *resource, have runtime.Object, opts metav1.DeleteOptions) (runtime.Object, error) {
	m := accessor(have)
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != m.GetUID() {
			return nil, apierrors.NewConflict(res.gvr().GroupResource(), m.GetName(),
				precondition("UID", string(*p.UID), string(m.GetUID())))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
			return nil, apierrors.NewConflict(res.gvr().GroupResource(), m.GetName(),
				precondition("ResourceVersion", *p.ResourceVersion, m.GetResourceVersion()))
		}
	}
	var grace int64
	pod, graceful := have.(*corev1.Pod)
	if graceful {
		grace = graceOf(pod, opts)
	}
	old := m.GetDeletionGracePeriodSeconds()
	drop := grace == 0 && len(m.GetFinalizers()) == 0
	// A watch shows that a pod has no grace period left before it shows that the pod is gone.
	if drop && (!graceful || old != nil && *old == 0) {
		return s.dropLocked(res, have), nil
	}
	if old != nil && *old <= grace {
		return have, nil // a deletion under way can only be made shorter
	}
	next := have.DeepCopyObject()
	nm := accessor(next)
	at := time.Now()
	if old := m.GetDeletionTimestamp(); old != nil {
		at = old.Add(-time.Duration(*m.GetDeletionGracePeriodSeconds()) * time.Second)
	}
	end := metav1.NewTime(at.Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	nm.SetDeletionTimestamp(&end)
	nm.SetDeletionGracePeriodSeconds(&grace)
	if res.generation && m.GetDeletionTimestamp() == nil {
		nm.SetGeneration(nm.GetGeneration() + 1)
	}
	s.putLocked(res, have, next)
	if drop {
		return s.dropLocked(res, next), nil
	}
	return next, nil
}

// unmet is a failed precondition, with the API server's message.
type unmet string

func (u unmet) Error() string { return string(u) }

func precondition(what, want, have string) error {
	return unmet(fmt.Sprintf("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, want, what,
		have))
}

// graceOver reports whether only finalizers keep an object from being deleted.
func graceOver(m metav1.Object) bool {
	g := m.GetDeletionGracePeriodSeconds()
	return g == nil || *g == 0
}
