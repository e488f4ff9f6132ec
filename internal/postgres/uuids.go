package postgres

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// carryUUIDs has uuid.UUID sent and read as the sixteen bytes that it is. Without it the
// driver knows no more of the type than that database/sql takes its text: each value is
// printed, parsed, and boxed on the way, which is most of what it costs to send a statement
// with arrays of ids. As anything but a uuid it is a text as before.
func carryUUIDs(m *pgtype.Map) {
	t := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	m.RegisterType(t)
	m.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: t}})
	m.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapUUIDs}, m.TryWrapEncodePlanFuncs...)
}

// uuidCodec is the driver's, and knows uuid.UUID.
type uuidCodec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type encodeUUID struct{}

// Encode implements pgtype.EncodePlan.
func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	u := value.(uuid.UUID)
	return append(buf, u[:]...), nil
}

type scanUUID struct{}

// Scan implements pgtype.ScanPlan. Null leaves the target as it is, as uuid.UUID itself
// has it.
func (scanUUID) Scan(src []byte, target any) error {
	if src == nil {
		return nil
	}
	u := target.(*uuid.UUID)
	if len(src) != len(u) {
		return fmt.Errorf("a uuid has %d bytes, not %d", len(u), len(src))
	}
	copy(u[:], src)
	return nil
}

// wrapUUIDs lets a list of ids be read without reflection.
func wrapUUIDs(value any) (plan pgtype.WrappedEncodePlanNextSetter, next any, ok bool) {
	if list, ok := value.([]uuid.UUID); ok {
		return &encodeUUIDs{}, pgtype.FlatArray[uuid.UUID](list), true
	}
	return nil, nil, false
}

type encodeUUIDs struct{ next pgtype.EncodePlan }

// SetNext implements pgtype.WrappedEncodePlanNextSetter.
func (p *encodeUUIDs) SetNext(next pgtype.EncodePlan) { p.next = next }

// Encode implements pgtype.EncodePlan.
func (p *encodeUUIDs) Encode(value any, buf []byte) ([]byte, error) {
	return p.next.Encode(pgtype.FlatArray[uuid.UUID](value.([]uuid.UUID)), buf)
}
