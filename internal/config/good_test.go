package config_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/l4"
)

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "testdata/good/confd/poise.yaml") {
		t.Run(strings.TrimPrefix(file, "testdata/good/"), func(t *testing.T) {
			f, err := config.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			dump(&out, "", reflect.ValueOf(*f))
			golden(t, wantFile(file), out.String())
		})
	}
}

// dump prints every field of v, one a line, those of structs and lists under
// their path.
func dump(out *strings.Builder, path string, v reflect.Value) {
	s, ok := v.Interface().(fmt.Stringer)
	if _, isListen := s.(l4.Listen); ok && !isListen { // its String leaves out V6Only
		fmt.Fprintf(out, "%s: %s\n", path, s)
		return
	}
	if b, ok := v.Interface().([]byte); ok {
		fmt.Fprintf(out, "%s: %q\n", path, b)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			fmt.Fprintf(out, "%s: nil\n", path)
			return
		}
		dump(out, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			dump(out, strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			fmt.Fprintf(out, "%s: []\n", path)
		}
		for i := range v.Len() {
			dump(out, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	default:
		fmt.Fprintf(out, "%s: %#v\n", path, v)
	}
}
