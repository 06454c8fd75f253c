# reason: unknown
class PlanExpired(Exception):
    pass


def bill(customer):
    raise PlanExpired(f"customer {customer} has no active plan")


bill(17)
