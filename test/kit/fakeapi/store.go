package fakeapi

import (
	"fmt"
	"sort"
	"strconv"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// keepChanges is how many changes a watch can be resumed over.
const keepChanges = 20_000

// change is one write, as watchers see it.
type change struct {
	gvr     schema.GroupVersionResource
	version uint64
	before  runtime.Object // nil for a creation
	after   runtime.Object // for a deletion: the last state, with its version
	deleted bool
}

func key(namespace, name string) string { return namespace + "/" + name }

func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("fakeapi: %T has no metadata: %v", obj, err))
	}
	return m
}

func (s *Server) findLocked(r *resource, namespace, name string) (runtime.Object, error) {
	obj, ok := s.objects[r.gvr()][key(namespace, name)]
	if !ok {
		return nil, apierrors.NewNotFound(r.gvr().GroupResource(), name)
	}
	return obj, nil
}

// putLocked stores obj under a new resource version. The caller must not change obj any more.
func (s *Server) putLocked(r *resource, before, obj runtime.Object) {
	s.version++
	m := accessor(obj)
	m.SetResourceVersion(strconv.FormatUint(s.version, 10))
	obj.GetObjectKind().SetGroupVersionKind(r.gvk)
	s.objects[r.gvr()][key(m.GetNamespace(), m.GetName())] = obj
	s.recordLocked(change{gvr: r.gvr(), version: s.version, before: before, after: obj})
}

// dropLocked removes an object; watchers see its last state.
func (s *Server) dropLocked(r *resource, obj runtime.Object) runtime.Object {
	s.version++
	last := obj.DeepCopyObject()
	m := accessor(last)
	m.SetResourceVersion(strconv.FormatUint(s.version, 10))
	delete(s.objects[r.gvr()], key(m.GetNamespace(), m.GetName()))
	s.recordLocked(change{gvr: r.gvr(), version: s.version, before: obj, after: last, deleted: true})
	return last
}

func (s *Server) recordLocked(c change) {
	s.changes = append(s.changes, c)
	if len(s.changes) > keepChanges {
		n := len(s.changes) - keepChanges/2
		s.floor = s.changes[n-1].version
		s.changes = append([]change(nil), s.changes[n:]...)
	}
	for w := range s.watchers {
		w.offer(c)
	}
}

func (s *Server) newUIDLocked() types.UID {
	s.serial++
	return types.UID(fmt.Sprintf("fa4eap10-0000-4000-8000-%012d", s.serial))
}

// selector is what a list or a watch is restricted to.
type selector struct {
	res       *resource
	namespace string
	name      string // of a watch on one object
	labels    labels.Selector
	fields    fields.Selector
}

func selectorOf(r *request) (selector, error) {
	sel := selector{res: r.res, namespace: r.namespace, name: r.name}
	q := r.URL.Query()
	var err error
	if sel.labels, err = labels.Parse(q.Get("labelSelector")); err != nil {
		return sel, apierrors.NewBadRequest(err.Error())
	}
	if sel.fields, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return sel, apierrors.NewBadRequest(err.Error())
	}
	known := fieldsOf(nil, r.res)
	for _, req := range sel.fields.Requirements() {
		if !known.Has(req.Field) {
			return sel, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", req.Field))
		}
	}
	return sel, nil
}

func (sel selector) matches(obj runtime.Object) bool {
	m := accessor(obj)
	return (sel.namespace == "" || sel.namespace == m.GetNamespace()) &&
		(sel.name == "" || sel.name == m.GetName()) &&
		sel.labels.Matches(labels.Set(m.GetLabels())) &&
		(sel.fields.Empty() || sel.fields.Matches(fieldsOf(obj, sel.res)))
}

// fieldsOf are the fields that selectors can use. Without an object, only the
// names are meaningful.
func fieldsOf(obj runtime.Object, r *resource) fields.Set {
	set := fields.Set{"metadata.name": "", "metadata.namespace": ""}
	if obj != nil {
		m := accessor(obj)
		set["metadata.name"], set["metadata.namespace"] = m.GetName(), m.GetNamespace()
	}
	switch {
	case r.name == "pods":
		p, _ := obj.(*corev1.Pod)
		if p == nil {
			p = &corev1.Pod{}
		}
		set["spec.nodeName"], set["status.phase"] = p.Spec.NodeName, string(p.Status.Phase)
		set["spec.restartPolicy"], set["spec.serviceAccountName"] = string(p.Spec.RestartPolicy),
			p.Spec.ServiceAccountName
	case r.name == "nodes":
		n, _ := obj.(*corev1.Node)
		if n == nil {
			n = &corev1.Node{}
		}
		set["spec.unschedulable"] = strconv.FormatBool(n.Spec.Unschedulable)
	case r.name == "services":
		svc, _ := obj.(*corev1.Service)
		if svc == nil {
			svc = &corev1.Service{}
		}
		set["spec.clusterIP"], set["spec.type"] = svc.Spec.ClusterIP, string(svc.Spec.Type)
	case r.name == "secrets":
		sec, _ := obj.(*corev1.Secret)
		if sec == nil {
			sec = &corev1.Secret{}
		}
		set["type"] = string(sec.Type)
	case r.name == "resourceslices":
		slice, _ := obj.(*resourcev1.ResourceSlice)
		if slice == nil {
			slice = &resourcev1.ResourceSlice{}
		}
		set["spec.driver"], set["spec.nodeName"] = slice.Spec.Driver, ""
		if slice.Spec.NodeName != nil {
			set["spec.nodeName"] = *slice.Spec.NodeName
		}
	case r.name == "podcertificaterequests":
		c, _ := obj.(*certificatesv1beta1.PodCertificateRequest)
		if c == nil {
			c = &certificatesv1beta1.PodCertificateRequest{}
		}
		set["spec.nodeName"], set["spec.signerName"] = string(c.Spec.NodeName), c.Spec.SignerName
	case r.name == "events" && r.gvk.Group == "":
		e, _ := obj.(*corev1.Event)
		if e == nil {
			e = &corev1.Event{}
		}
		o := e.InvolvedObject
		set["involvedObject.kind"], set["involvedObject.namespace"], set["involvedObject.name"] = o.Kind, o.Namespace,
			o.Name
		set["involvedObject.uid"], set["reason"], set["type"] = string(o.UID), e.Reason, e.Type
	}
	return set
}

// selectLocked returns the objects that match, ordered by namespace and name.
func (s *Server) selectLocked(sel selector) []runtime.Object {
	var keys []string
	all := s.objects[sel.res.gvr()]
	for k := range all {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var out []runtime.Object
	for _, k := range keys {
		if sel.matches(all[k]) {
			out = append(out, all[k])
		}
	}
	return out
}

// eventFor translates a change into what a watcher with this selector sees: an
// object that comes to match is added, one that no longer does is deleted.
func (sel selector) eventFor(c change) (watch.Event, bool) {
	if c.gvr != sel.res.gvr() {
		return watch.Event{}, false
	}
	was := c.before != nil && sel.matches(c.before)
	is := !c.deleted && sel.matches(c.after)
	switch {
	case was && is:
		return watch.Event{Type: watch.Modified, Object: c.after}, true
	case is:
		return watch.Event{Type: watch.Added, Object: c.after}, true
	case was && c.deleted:
		return watch.Event{Type: watch.Deleted, Object: c.after}, true
	case was:
		last := c.before.DeepCopyObject()
		accessor(last).SetResourceVersion(strconv.FormatUint(c.version, 10))
		return watch.Event{Type: watch.Deleted, Object: last}, true
	}
	return watch.Event{}, false
}

// newObject makes an empty object of a kind.
func newObject(gvk schema.GroupVersionKind) runtime.Object {
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		panic("fakeapi: " + err.Error())
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}
