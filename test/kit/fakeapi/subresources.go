package fakeapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// createSub answers POST on a subresource of an object.
func (s *Server) createSub(r *request) (runtime.Object, error) {
	switch r.res.name + "/" + r.sub {
	case "serviceaccounts/token":
		return s.issueToken(r)
	case "pods/binding":
		return s.bind(r)
	case "pods/eviction":
		return s.evict(r)
	}
	return nil, notFoundPath(r.Request)
}

// issueToken makes a token of the usual form (three parts, claims in the
// middle). Its signature is not valid.
func (s *Server) issueToken(r *request) (runtime.Object, error) {
	obj, err := decode(r, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sa, err := s.findLocked(r.res, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	t := obj.(*authenticationv1.TokenRequest)
	seconds := tokenLife
	if t.Spec.ExpirationSeconds != nil {
		seconds = *t.Spec.ExpirationSeconds
	}
	if seconds < 600 {
		return nil, apierrors.NewInvalid(
			authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(),
			"",
			field.ErrorList{
				field.Invalid(
					field.NewPath("spec", "expirationSeconds"),
					seconds,
					"may not specify a duration less than 10 minutes",
				),
			},
		)
	}
	if len(t.Spec.Audiences) == 0 {
		t.Spec.Audiences = []string{"https://kubernetes.default.svc"}
	}
	if ref := t.Spec.BoundObjectRef; ref != nil && ref.Kind == "Pod" {
		pod, err := s.findLocked(resources[podGVR], r.namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		if ref.UID != "" && ref.UID != accessor(pod).GetUID() {
			return nil, apierrors.NewConflict(podGVR.GroupResource(), ref.Name,
				fmt.Errorf(
					"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
		}
	}
	bound := map[string]any{
		"namespace":      r.namespace,
		"serviceaccount": map[string]any{"name": r.name, "uid": accessor(sa).GetUID()},
	}
	if ref := t.Spec.BoundObjectRef; ref != nil {
		bound[strings.ToLower(ref.Kind)] = map[string]any{"name": ref.Name, "uid": ref.UID}
	}
	s.serial++
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"aud": t.Spec.Audiences, "exp": now.Unix() + seconds, "iat": now.Unix(), "jti": s.serial,
		"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:" + r.namespace + ":" + r.name,
		"kubernetes.io": bound,
	})
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	enc := base64.RawURLEncoding
	signature := sha256.Sum256(claims)
	t.Status.Token = enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." + enc.EncodeToString(claims) + "." +
		enc.EncodeToString(signature[:])
	t.Status.ExpirationTimestamp = metav1.NewTime(now.Add(time.Duration(seconds) * time.Second).Truncate(time.Second))
	t.Spec.ExpirationSeconds = &seconds
	t.Name, t.Namespace, t.CreationTimestamp = r.name, r.namespace, metav1.NewTime(now.Truncate(time.Second))
	t.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
	return t, nil
}

var (
	podGVR       = corev1.SchemeGroupVersion.WithResource("pods")
	namespaceGVR = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// success is the answer to an action without a result.
func success() runtime.Object {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Code:     http.StatusCreated,
	}
}

// bind binds a pod to a node, as the scheduler does.
func (s *Server) bind(r *request) (runtime.Object, error) {
	obj, err := decode(r, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return nil, err
	}
	b := obj.(*corev1.Binding)
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.findLocked(r.res, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	pod := have.DeepCopyObject().(*corev1.Pod)
	if pod.Spec.NodeName != "" {
		return nil, apierrors.NewConflict(podGVR.GroupResource(), r.name,
			fmt.Errorf("pod %s is already assigned to node %q", r.name, pod.Spec.NodeName))
	}
	pod.Spec.NodeName = b.Target.Name
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	})
	s.putLocked(r.res, have, pod)
	return success(), nil
}

// evict deletes a pod. There are no disruption budgets here.
func (s *Server) evict(r *request) (runtime.Object, error) {
	obj, err := decode(r, policyv1.SchemeGroupVersion.WithKind("Eviction"))
	if err != nil {
		return nil, err
	}
	var opts metav1.DeleteOptions
	if o := obj.(*policyv1.Eviction).DeleteOptions; o != nil {
		opts = *o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.findLocked(r.res, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	if _, err := s.deleteLocked(r.res, have, opts); err != nil {
		return nil, err
	}
	return success(), nil
}

// review is a resource that is answered and not stored, such as a TokenReview.
type review struct {
	gvk    schema.GroupVersionKind
	answer func(*Server, runtime.Object) // called under Server.mu
}

var reviews = map[schema.GroupVersionResource]*review{
	authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"): {
		authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		func(s *Server, obj runtime.Object) {
			t := obj.(*authenticationv1.TokenReview)
			user, ok := s.tokens[t.Spec.Token]
			t.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: user, Audiences: t.Spec.Audiences}
		},
	},
	authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"): {
		authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
		func(s *Server, obj runtime.Object) {
			a := obj.(*authorizationv1.SubjectAccessReview)
			a.Status.Allowed = s.access == nil || s.access(a.Spec)
			if !a.Status.Allowed {
				a.Status.Reason = "denied by the test"
			}
		},
	},
}

func (s *Server) review(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodPost || r.name != "" {
		return notFoundPath(r.Request)
	}
	obj, err := decode(r, r.review.gvk)
	if err != nil {
		return err
	}
	s.mu.Lock()
	r.review.answer(s, obj)
	s.mu.Unlock()
	obj.GetObjectKind().SetGroupVersionKind(r.review.gvk)
	return write(w, r.Request, http.StatusCreated, obj)
}

// AddToken makes token reviews accept a token for a user.
func (s *Server) AddToken(token string, user authenticationv1.UserInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = user
}

// Authorize decides access reviews from now on; nil allows everything. It must
// not call the server.
func (s *Server) Authorize(allow func(authorizationv1.SubjectAccessReviewSpec) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.access = allow
}
