# reason: unknown
class UniqueViolation(Exception):
    pass


raise UniqueViolation('duplicate key value violates unique constraint "runs_pkey"')
