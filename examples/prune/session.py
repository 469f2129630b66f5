"""Sessions of the shop: kept in memory, renewed when used."""
import time

LIFETIME = 1800


class Session:
    def __init__(self, user):
        self.user = user
        self.cart = []
        self.touched = time.time()

    def add(self, item, count=1):
        """Put something into the cart."""
        for line in self.cart:
            if line.item == item:
                line.count += count
                return line
        line = Line(item, count)
        self.cart.append(line)
        return line

    def total(self):
        """What the cart costs."""
        return sum(line.item.price * line.count for line in self.cart)

    def is_expired(self, now):
        return now - self.touched > LIFETIME


class Line:
    def __init__(self, item, count):
        self.item = item
        self.count = count


class Sessions:
    def __init__(self):
        self.by_id = {}

    def get(self, session_id):
        """The session of an id; None when there is none, or it has expired."""
        session = self.by_id.get(session_id)
        if session is None:
            return None
        now = time.time()
        if session.is_expired(now):
            del self.by_id[session_id]
            return None
        session.touched = now
        return session

    def report(self, out):
        """Print who is here and what they would pay."""
        for session_id, session in sorted(self.by_id.items()):
            out.write("%s %s %d\n" % (session_id, session.user, session.total()))
        out.write("%d sessions\n" % len(self.by_id))
