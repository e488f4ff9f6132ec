package jobs

import "fmt"

// Judge says whether a report of a job is accepted. Nil means that it is. ErrAgain: it
// was accepted before. ErrLeaseLost: somebody else has the job, or a later attempt is on
// its way. ErrFinished: the job has ended otherwise.
//
// Who gives a token is known by it, who gives none by its worker id. A lease that ran
// out is still good for one report until somebody else takes the job. What Kafka brings
// belongs to the first who speaks of it.
func Judge(h Held, by Holder, report Report) error {
	mine := h.mine(by)
	switch h.Status {
	case Locked:
		if mine {
			return nil
		}
		return h.refuse(ErrLeaseLost)
	case Unlocked:
		switch {
		case !mine || h.Token == 0:
			return h.refuse(ErrLeaseLost)
		case h.Expired > 0:
			return nil
		case report == Fails:
			return ErrAgain
		}
		return h.refuse(ErrLeaseLost)
	case Completed, Failed, Cancelled:
	}
	if mine && (h.Status == Completed && report == Completes || h.Status == Failed && report == Fails) {
		return ErrAgain
	}
	return h.refuse(ErrFinished)
}

// JudgeExpired says whether the lease that a sweep found is still the job's, and over.
// If not, there is nothing to do.
func JudgeExpired(h Held, e Expired) bool {
	return h.Status == Locked && h.Token == e.Token && !h.LockExpiresAt.IsZero() && !h.LockExpiresAt.After(h.Now)
}

// mine reports whether by is the last holder of the job.
func (h Held) mine(by Holder) bool {
	if h.Dispatched && h.WorkerID == "" {
		// Nobody took it yet. The lease before this one may still complete it.
		return by.Token == 0 || by.Token == h.Token || h.Expired > 0 && by.Token == h.Token-1
	}
	if by.Token == 0 {
		return by.WorkerID != "" && by.WorkerID == h.WorkerID
	}
	// A record of Kafka may come to two workers, with one token.
	return by.Token == h.Token && (!h.Dispatched || by.WorkerID == "" || by.WorkerID == h.WorkerID)
}

func (h Held) refuse(why error) error {
	r := &Refusal{Status: h.Status}
	switch {
	case h.Status == Locked && h.WorkerID == "":
		r.why = fmt.Errorf("job %s is %s, dispatched as token %d, attempt %d: %w", h.ID, h.Status, h.Token, h.Attempt, why)
	case h.Status == Locked:
		r.why = fmt.Errorf("job %s is %s by worker %q, attempt %d: %w", h.ID, h.Status, h.WorkerID, h.Attempt, why)
	default:
		r.why = fmt.Errorf("job %s is %s, attempt %d: %w", h.ID, h.Status, h.Attempt, why)
	}
	return r
}
