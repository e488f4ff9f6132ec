package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody is how large a request may be, as on a real server.
const maxBody = 3 << 20

// negotiate finds the encoding that a request accepts.
func negotiate(r *http.Request) (runtime.SerializerInfo, error) {
	supported := scheme.Codecs.SupportedMediaTypes()
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for part := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil || params["as"] != "" {
			continue
		}
		if name == "*/*" || name == "application/*" {
			name = runtime.ContentTypeJSON
		}
		if info, ok := runtime.SerializerInfoForMediaType(supported, name); ok {
			return info, nil
		}
	}
	return runtime.SerializerInfo{}, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "",
		fmt.Sprintf("only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf; asked for was %s", accept), 0, true)
}

// write answers with an object, which has to say what kind it is: what is stored does, and is
// not touched, since many read it at once.
func write(w http.ResponseWriter, r *http.Request, code int, o runtime.Object) error {
	info, err := negotiate(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := info.Serializer.Encode(o, &b); err != nil {
		return err
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
	return nil
}

// list makes the list of a kind out of objects.
func list(r *servedKind, objects []object, revision, next string, remaining int64) (runtime.Object, error) {
	l, err := scheme.Scheme.New(r.GroupVersion().WithKind(r.kind + "List"))
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, len(objects))
	for i, o := range objects {
		items[i] = o
	}
	if err := meta.SetList(l, items); err != nil {
		return nil, err
	}
	// Only the list says what kind it is.
	l.GetObjectKind().SetGroupVersionKind(r.GroupVersion().WithKind(r.kind + "List"))
	err = meta.EachListItem(l, func(item runtime.Object) error {
		item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(l)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(revision)
	m.SetContinue(next)
	if remaining > 0 {
		m.SetRemainingItemCount(&remaining)
	}
	return l, nil
}

// body reads a request.
func body(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(data) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return data, nil
}

// decode reads an object of a kind; what does not say what it is is taken for that kind.
func decode(data []byte, gvk schema.GroupVersionKind) (runtime.Object, error) {
	o, got, err := scheme.Codecs.UniversalDeserializer().Decode(data, &gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if *got != gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is a %s, and a %s is expected here", got, gvk))
	}
	return o, nil
}

// deleteOptions reads the options of a deletion from the body and the query.
func deleteOptions(r *http.Request) (metav1.DeleteOptions, error) {
	var options metav1.DeleteOptions
	data, err := body(r)
	if err != nil {
		return options, err
	}
	if len(data) > 0 {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, &schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, nil)
		if err != nil {
			return options, apierrors.NewBadRequest(err.Error())
		}
		got, ok := o.(*metav1.DeleteOptions)
		if !ok {
			return options, apierrors.NewBadRequest(fmt.Sprintf("%T is no DeleteOptions", o))
		}
		return *got, nil
	}
	err = metav1.Convert_url_Values_To_v1_DeleteOptions(new(r.URL.Query()), &options, nil)
	if err != nil {
		return options, apierrors.NewBadRequest(err.Error())
	}
	return options, nil
}

// success is the answer to what has no object to show.
func success() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
}
