package apisuite

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func testEvents(t *testing.T, s *space) {
	ctx, events := t.Context(), s.CoreV1().Events(s.name)
	p := s.create(t, pod("a", "n"))
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	_, err := events.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "a.1", Namespace: s.name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: s.name, Name: "a", UID: p.UID},
		Reason:         "Started",
		Message:        "m",
		Type:           corev1.EventTypeNormal,
		Count:          1,
		FirstTimestamp: now,
		LastTimestamp:  now,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := events.Patch(ctx, "a.1", types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})
	if err != nil || got.Count != 2 || got.Reason != "Started" {
		t.Errorf("%+v, %v", got, err)
	}
	list, err := events.List(
		ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID) + ",reason=Started"},
	)
	if err != nil || len(list.Items) != 1 {
		t.Errorf("listed %+v, %v", list, err)
	}
	_, err = events.Patch(ctx, "a.2", types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})
	refused(t, "patch an event that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func testLease(t *testing.T, s *space) {
	ctx, leases := t.Context(), s.CoordinationV1().Leases(s.name)
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	first, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To("n"),
			LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime:            &now,
		},
	}, metav1.CreateOptions{})
	if err != nil || !first.Spec.RenewTime.Time.Equal(now.Time) {
		t.Fatalf("%+v, %v", first, err)
	}
	later := metav1.NewMicroTime(now.Add(10 * time.Second))
	next := first.DeepCopy()
	next.Spec.RenewTime = &later
	second, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err != nil || !second.Spec.RenewTime.Time.Equal(later.Time) || second.ResourceVersion == first.ResourceVersion {
		t.Errorf("renewed %+v, %v", second, err)
	}
	_, err = leases.Update(ctx, next, metav1.UpdateOptions{})
	refused(t, "renew an old version", err, http.StatusConflict, metav1.StatusReasonConflict)
	_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	refused(t, "create a lease that exists", err, http.StatusConflict, metav1.StatusReasonAlreadyExists)
}

func testNode(t *testing.T, s *space) {
	ctx, nodes := t.Context(), s.CoreV1().Nodes()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: corev1.NodeSpec{
			Unschedulable: true,
			Taints:        []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"}},
	}
	n, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Status.NodeInfo.KubeletVersion != "v1" {
		t.Errorf("the status of a new node is dropped: %+v", n.Status)
	}
	_, err = nodes.Create(ctx, node, metav1.CreateOptions{})
	refused(t, "register a node that exists", err, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	patch := func(body string) *corev1.Node {
		t.Helper()
		got, err := nodes.PatchStatus(ctx, s.name, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	patch(`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"Hostname","address":"h"}],"conditions":[` +
		`{"type":"Ready","status":"False"},{"type":"DiskPressure","status":"False"}],"capacity":{"cpu":"2","memory":"1Gi"}}}`)
	got := patch(`{"status":{"conditions":[{"type":"Ready","status":"True"}],"capacity":{"memory":"2Gi"},"images":[{"names":["a"],"sizeBytes":1}]}}`)
	if c := got.Status.Conditions; len(c) != 2 || c[0].Type != "Ready" || c[0].Status != "True" ||
		c[1].Type != "DiskPressure" {
		t.Errorf("conditions %+v", c)
	}
	if c := got.Status.Capacity; c.Cpu().Value() != 2 || c.Memory().Value() != 2<<30 || len(got.Status.Images) != 1 ||
		len(got.Status.Addresses) != 2 {
		t.Errorf("status %+v", got.Status)
	}
	got = patch(`{"status":{"addresses":[{"$patch":"replace"},{"type":"InternalIP","address":"10.0.0.2"}]}}`)
	if a := got.Status.Addresses; len(a) != 1 || a[0].Address != "10.0.0.2" {
		t.Errorf("addresses %+v", a)
	}
	if !slices.ContainsFunc(got.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "a" }) {
		t.Errorf("taints %+v", got.Spec.Taints)
	}
	if err := nodes.Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	_, err = nodes.PatchStatus(ctx, s.name, []byte(`{}`))
	refused(t, "patch a node that was deleted", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func testToken(t *testing.T, s *space) {
	ctx, accounts := t.Context(), s.CoreV1().ServiceAccounts(s.name)
	p := s.create(t, pod("a", "n"))
	request := func(uid types.UID, seconds int64) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences:         []string{"client"},
			ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				Kind:       "Pod",
				APIVersion: "v1",
				Name:       "a",
				UID:        uid,
			},
		}}
	}
	got, err := accounts.CreateToken(ctx, account, request(p.UID, 1200), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(got.Status.ExpirationTimestamp.Time); left > 1200*time.Second || left < 1100*time.Second ||
		*got.Spec.ExpirationSeconds != 1200 {
		t.Errorf("expires in %v", left)
	}
	parts := strings.Split(got.Status.Token, ".")
	if len(parts) != 3 {
		t.Fatalf("token %q", got.Status.Token)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Audiences []string `json:"aud"`
		Subject   string   `json:"sub"`
		Bound     struct {
			Namespace string
			Pod       struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Subject != "system:serviceaccount:"+s.name+":"+account || !slices.Equal(claims.Audiences, []string{
		"client",
	}) ||
		claims.Bound.Namespace != s.name ||
		claims.Bound.Pod.Name != "a" ||
		claims.Bound.Pod.UID != string(p.UID) {
		t.Errorf("claims %s", text)
	}

	_, err = accounts.CreateToken(ctx, "none", request(p.UID, 1200), metav1.CreateOptions{})
	refused(t, "a token of an account that does not exist", err, http.StatusNotFound, metav1.StatusReasonNotFound)
	_, err = accounts.CreateToken(ctx, account, request("another", 1200), metav1.CreateOptions{})
	refused(t, "a token for another UID", err, http.StatusConflict, metav1.StatusReasonConflict)
	_, err = accounts.CreateToken(ctx, account, request(p.UID, 60), metav1.CreateOptions{})
	refused(t, "a token for a minute", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)

	review, err := s.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: "nonsense"},
	}, metav1.CreateOptions{})
	if err != nil || review.Status.Authenticated {
		t.Errorf("%+v, %v", review, err)
	}
	access, err := s.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "root", Groups: []string{"system:masters"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "log"},
		},
	}, metav1.CreateOptions{})
	if err != nil || !access.Status.Allowed {
		t.Errorf("%+v, %v", access, err)
	}
}

func testSigningRequest(t *testing.T, s *space) {
	ctx, requests := t.Context(), s.CertificatesV1().CertificateSigningRequests()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(
		rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "n"}},
		key,
	)
	if err != nil {
		t.Fatal(err)
	}
	r, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-", Labels: map[string]string{"suite": s.uid}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "suite.keelson.dev/signer",
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature},
		},
	}, metav1.CreateOptions{})
	if err != nil || len(r.Name) != len("csr-")+5 || len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	approved := r.DeepCopy()
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Suite"},
	}
	got, err := requests.UpdateApproval(ctx, r.Name, approved, metav1.UpdateOptions{})
	if err != nil || len(got.Status.Conditions) != 1 ||
		got.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
		t.Errorf("approved: %+v, %v", got, err)
	}
	if err := requests.Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	_, err = requests.Get(ctx, r.Name, metav1.GetOptions{})
	refused(t, "get a request that was deleted", err, http.StatusNotFound, metav1.StatusReasonNotFound)
}
