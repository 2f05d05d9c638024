/** The chart of the offline model's report: which points it shows, and an SVG drawn by hand, in Python. */

export const csvChartScript = String.raw`
def chart_points(values, header, rows):
    metric = C['metrics'][0] if C['metrics'] else None
    if C['date'] is not None and metric is not None:
        groups = collections.defaultdict(list)
        for date, value in zip(values[C['date']], values[metric]):
            if date is not None and value is not None:
                groups[str(date)[:C['period']]].append(value)
        period = {4: 'year', 7: 'month', 10: 'day'}[C['period']]
        return 'Mean of %s by %s' % (header[metric], period), [(key, mean(groups[key])) for key in sorted(groups)], True
    if C['category'] is not None:
        groups = collections.defaultdict(list)
        for place, key in enumerate(values[C['category']]):
            if key is not None and (metric is None or values[metric][place] is not None):
                groups[key].append(1 if metric is None else values[metric][place])
        order = sorted(groups, key=lambda key: (-len(groups[key]), str(key)))[:20]
        if metric is None:
            return 'Rows by %s' % header[C['category']], [(key, len(groups[key])) for key in order], False
        return 'Mean of %s by %s' % (header[metric], header[C['category']]), [(key, mean(groups[key])) for key in order], False
    if metric is not None:
        numbers = [value for value in values[metric] if value is not None]
        low, high = min(numbers), max(numbers)
        bins = min(12, max(1, len(set(numbers))))
        step = (high - low) / bins or 1
        counts = [0] * bins
        for number in numbers:
            counts[min(bins - 1, int((number - low) / step))] += 1
        return 'Distribution of %s' % header[metric], [(shown(low + index * step), count) for index, count in enumerate(counts)], False
    return 'No chart: no column to show', [], False

def svg_text(text, limit=40):
    text = ''.join(char if char.isprintable() else ' ' for char in str(text))
    text = text if len(text) <= limit else text[:limit - 1] + '\u2026'
    return text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;').replace('"', '&quot;')

def ticks(low, high):
    span = high - low or abs(high) or 1
    step = 10 ** math.floor(math.log10(span / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    first = math.floor(low / step)
    return [step * index for index in range(first, first + 9) if step * (index - 1) < high]

def draw_chart(title, points, line):
    width, height, left, right, top, bottom = 800, 420, 70, 20, 50, 90
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (width, height),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="28" font-size="16" text-anchor="middle">%s</text>' % (width // 2, svg_text(title, 90))]
    if points:
        marks = ticks(min(0, min(value for key, value in points)), max(0, max(value for key, value in points)))
        low, high = marks[0], marks[-1] if marks[-1] > marks[0] else marks[0] + 1
        def x(index):
            return left + (width - left - right) * (index + 0.5) / len(points)
        def y(value):
            return top + (height - top - bottom) * (high - value) / (high - low)
        for mark in marks:
            out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>' % (left, width - right, y(mark), y(mark)))
            out.append('<text x="%d" y="%.1f" text-anchor="end">%s</text>' % (left - 8, y(mark) + 4, shown(round(mark, 10))))
        if line:
            path = ' '.join('%.1f,%.1f' % (x(index), y(value)) for index, (key, value) in enumerate(points))
            out.append('<polyline points="%s" fill="none" stroke="#2563eb" stroke-width="2"/>' % path)
        thin = max(1, math.ceil(len(points) / 16))
        for index, (key, value) in enumerate(points):
            if line:
                out.append('<circle cx="%.1f" cy="%.1f" r="2.5" fill="#2563eb"><title>%s: %s</title></circle>' % (x(index), y(value), svg_text(key), shown(value)))
            else:
                wide = 0.7 * (width - left - right) / len(points)
                out.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#2563eb"><title>%s: %s</title></rect>' % (
                    x(index) - wide / 2, min(y(value), y(0)), wide, abs(y(value) - y(0)), svg_text(key), shown(value)))
            if index % thin == 0:
                out.append('<text transform="translate(%.1f,%d) rotate(-40)" text-anchor="end">%s</text>' % (x(index) + 4, height - bottom + 16, svg_text(key, 14)))
    out.append('</svg>')
    return '\n'.join(out) + '\n'
`
